package schema

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/canonical"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
)

// MaxExactInteger is the largest integer that every JSON reader represents exactly, 2^53.
// A larger principalId is sent as a decimal string.
const MaxExactInteger = 1 << 53

// HexID is an 8-byte identifier in 16 hexadecimal digits. {id} path segments, roles and
// operations use this form.
type HexID values.ID

var (
	errHexID     = errors.New("must be 16 hexadecimal digits")
	errDecimalID = errors.New("must be a decimal number from 0 to 18446744073709551615 without sign or leading zeros, as a string when above 9007199254740992")
	errBase64ID  = errors.New("must be canonical base64 of 8 bytes, not hexadecimal and not a number")
	errSystemID  = errors.New("must be an integer from 0 to 4294967295")
)

// MarshalText returns lower-case digits.
func (id HexID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText accepts digits of either case.
func (id *HexID) UnmarshalText(text []byte) error {
	parsed, err := values.ParseHexID(string(text))
	if err != nil {
		return errHexID
	}
	*id = HexID(parsed)
	return nil
}

// ParseHexID parses an identifier. The error is the end of a sentence that begins with
// the field name.
func ParseHexID(text string) (id HexID, err error) {
	err = id.UnmarshalText([]byte(text))
	return id, err
}

// String returns lower-case digits.
func (id HexID) String() string { return values.ID(id).Hex() }

// ByID is a request that names its object in the path and nothing else.
type ByID struct {
	ID HexID `path:"id" json:"-" names:"route" doc:"16 hexadecimal digits."`
}

// DecimalID is an 8-byte identifier as a decimal number. principalId uses this
// form. A request may contain an integer up to 2^53 or a string; a response
// always contains a string.
type DecimalID values.ID

// MarshalText returns the decimal string.
func (id DecimalID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText decodes the decimal string.
func (id *DecimalID) UnmarshalText(text []byte) error {
	parsed, err := values.ParseDecimalID(string(text))
	if err != nil {
		return errDecimalID
	}
	*id = DecimalID(parsed)
	return nil
}

// UnmarshalJSON decodes a string or an integer. It refuses a number with a fraction or an
// exponent, because JSON readers disagree on its value.
func (id *DecimalID) UnmarshalJSON(value []byte) error {
	if len(value) > 0 && value[0] == '"' {
		var s string
		if err := json.Unmarshal(value, &s); err != nil {
			return errDecimalID
		}
		return id.UnmarshalText([]byte(s))
	}
	n, err := parseInteger(value, MaxExactInteger)
	if err != nil {
		return errDecimalID
	}
	*id = DecimalID(values.IDFromUint64(n))
	return nil
}

// ParseDecimalID parses an identifier, as ParseHexID does.
func ParseDecimalID(text string) (id DecimalID, err error) {
	err = id.UnmarshalText([]byte(text))
	return id, err
}

// String returns the decimal form.
func (id DecimalID) String() string { return values.ID(id).Decimal() }

// Base64ID is an 8-byte identifier in canonical base64. certificateId and the opaque
// handles of ACLs use this form.
type Base64ID values.ID

// MarshalText encodes the id.
func (id Base64ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText accepts only the canonical spelling.
func (id *Base64ID) UnmarshalText(text []byte) error {
	parsed, err := values.ParseBase64ID(string(text))
	if err != nil {
		return errBase64ID
	}
	*id = Base64ID(parsed)
	return nil
}

// ParseBase64ID parses an identifier, as ParseHexID does.
func ParseBase64ID(text string) (id Base64ID, err error) {
	err = id.UnmarshalText([]byte(text))
	return id, err
}

// String returns canonical base64.
func (id Base64ID) String() string { return values.ID(id).Base64() }

// SystemID identifies a key server, as a JSON integer.
type SystemID values.SystemID

// UnmarshalJSON decodes a non-negative integer of 32 bits.
func (id *SystemID) UnmarshalJSON(value []byte) error {
	n, err := parseInteger(value, math.MaxUint32)
	if err != nil {
		return errSystemID
	}
	*id = SystemID(n & math.MaxUint32)
	return nil
}

// MarshalJSON returns the integer.
func (id SystemID) MarshalJSON() ([]byte, error) {
	return strconv.AppendUint(nil, uint64(id), 10), nil
}

// HiddenLink is the opaque handle of a key: 1 to 64 bytes in canonical base64. An empty link is refused, because it
// names no key, and a key server could take it for a request to create a key.
type HiddenLink values.HiddenLink

var (
	errEmptyLink = errors.New("must not be empty; send the canonical base64 of the key's hidden link")
	errLink      = errors.New("must be the canonical base64 of a hidden link of 1 to 64 bytes")
)

// MarshalText encodes the link.
func (l HiddenLink) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText decodes canonical base64.
func (l *HiddenLink) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return errEmptyLink
	}
	raw, err := canonical.Decode(string(text))
	if err != nil || len(raw) > values.MaxHiddenLink {
		return errLink
	}
	*l = HiddenLink(raw)
	return nil
}

// String returns canonical base64.
func (l HiddenLink) String() string { return values.HiddenLink(l).Base64() }

// LinkOf returns the hidden link of a key of a key server.
func LinkOf(system SystemID, key HexID) HiddenLink {
	return HiddenLink(values.NewHiddenLink(values.SystemID(system), values.ID(key)))
}

// Split returns the key server and the id of the key, as in the change feed and owner
// marks. ok is false if the link has another form.
func (l HiddenLink) Split() (system SystemID, key HexID, ok bool) {
	s, id, ok := values.HiddenLink(l).Split()
	return SystemID(s), HexID(id), ok
}

// parseInteger parses a JSON integer from 0 to limit, without fraction or exponent.
func parseInteger(value []byte, limit uint64) (uint64, error) {
	n, err := strconv.ParseUint(string(value), 10, 64)
	if err != nil {
		return 0, err
	}
	if n > limit || (len(value) > 1 && value[0] == '0') {
		return 0, strconv.ErrRange
	}
	return n, nil
}
