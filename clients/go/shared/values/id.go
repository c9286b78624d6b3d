// Package values has the values of the API that have a text format: ids, hidden links, rights, time stamps and trust
// blobs.
package values

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/canonical"
)

// ID is the 8-byte identifier of an object. The zero ID names no object. It has three text formats. No code detects the
// format from the text: each caller chooses the parser.
type ID [8]byte

// ErrMalformedID is the error that every parser of identifiers wraps.
var ErrMalformedID = errors.New("malformed identifier")

// NewID reads a random id from random. The id is never zero.
func NewID(random io.Reader) (ID, error) {
	var id ID
	for id == (ID{}) {
		if _, err := io.ReadFull(random, id[:]); err != nil {
			return ID{}, fmt.Errorf("create an identifier: %w", err)
		}
	}
	return id, nil
}

// ParseHexID parses 16 hexadecimal digits of either case.
func ParseHexID(s string) (ID, error) {
	var id ID
	if len(s) != 2*len(id) {
		return ID{}, fmt.Errorf("%w: want 16 hexadecimal digits", ErrMalformedID)
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return ID{}, fmt.Errorf("%w: want 16 hexadecimal digits", ErrMalformedID)
	}
	return id, nil
}

// ParseDecimalID parses an unsigned decimal number without sign, leading zero or space,
// up to 2^64-1.
func ParseDecimalID(s string) (ID, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != s {
		return ID{}, fmt.Errorf("%w: want a decimal number from 0 to 18446744073709551615 without leading zeros", ErrMalformedID)
	}
	return IDFromUint64(n), nil
}

// ParseBase64ID parses the canonical base64 of 8 bytes.
func ParseBase64ID(s string) (ID, error) {
	b, err := canonical.Decode(s)
	if err != nil || len(b) != len(ID{}) {
		return ID{}, fmt.Errorf("%w: want canonical base64 of 8 bytes", ErrMalformedID)
	}
	return ID(b), nil
}

// IDFromUint64 returns the id with the decimal format n.
func IDFromUint64(n uint64) ID {
	var id ID
	binary.BigEndian.PutUint64(id[:], n)
	return id
}

// Uint64 returns the number of the decimal format.
func (id ID) Uint64() uint64 { return binary.BigEndian.Uint64(id[:]) }

// IsZero reports whether the id is zero, so that it names no object.
func (id ID) IsZero() bool { return id == ID{} }

// Hex returns 16 lower-case hexadecimal digits, the format of {id} path segments.
func (id ID) Hex() string { return hex.EncodeToString(id[:]) }

// Decimal returns the format of principalId.
func (id ID) Decimal() string { return strconv.FormatUint(id.Uint64(), 10) }

// Base64 returns canonical base64, the format of certificateId.
func (id ID) Base64() string { return canonical.Encode(id[:]) }

// String returns the hexadecimal format, for logs.
func (id ID) String() string { return id.Hex() }

// SystemID identifies a key server. It has 4 bytes because a hidden link stores it in 4.
type SystemID uint32

// PrincipalRef names a principal of any key server: the pair that ACL routes take.
type PrincipalRef struct {
	System SystemID
	ID     ID
}

// String returns "system/decimal id", for logs and audit objects.
func (r PrincipalRef) String() string {
	return strconv.FormatUint(uint64(r.System), 10) + "/" + r.ID.Decimal()
}
