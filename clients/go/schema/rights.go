package schema

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/canonical"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
)

// Rights is the bitmask of an ACL entry. A request may contain the integer or an array
// of names; a response contains the integer. A bit or name that is not a right is
// refused, never ignored.
type Rights values.Rights

var errRights = fmt.Errorf("must be an integer from 0 to %d or an array of names out of %s",
	values.AllRights, strings.Join(values.RightNames(), ", "))

// MarshalJSON returns the bitmask.
func (r Rights) MarshalJSON() ([]byte, error) { return strconv.AppendUint(nil, uint64(r), 10), nil }

// UnmarshalJSON decodes the bitmask or the names.
func (r *Rights) UnmarshalJSON(value []byte) error {
	if len(value) > 0 && value[0] == '[' {
		return r.unmarshalNames(value)
	}
	n, err := parseInteger(value, uint64(values.AllRights))
	if err != nil {
		return errRights
	}
	*r = Rights(n & uint64(values.AllRights))
	return nil
}

func (r *Rights) unmarshalNames(value []byte) error {
	// The names are pointers, because encoding/json would decode null as an empty name.
	var names []*string
	if err := json.Unmarshal(value, &names); err != nil {
		return errRights
	}
	var all values.Rights
	for _, name := range names {
		if name == nil {
			return errRights
		}
		bit, ok := values.ParseRight(*name)
		if !ok {
			return errRights
		}
		all |= bit
	}
	*r = Rights(all)
	return nil
}

// Names returns the names of the bits that are set.
func (r Rights) Names() []string { return values.Rights(r).Names() }

// RightNamed returns the right with the name, or 0 if there is none.
func RightNamed(name string) Rights {
	bit, _ := values.ParseRight(name)
	return Rights(bit)
}

// Widen returns the rights that a key server grants if r is requested.
func (r Rights) Widen() Rights { return Rights(values.Rights(r).Widen()) }

// Has reports whether all bits of want are set. Comparing for equality would be wrong,
// because a key server widens the requested rights.
func (r Rights) Has(want Rights) bool { return values.Rights(r).Has(values.Rights(want)) }

// Stamp is a raw 8-byte time in canonical base64. All zero means unset.
type Stamp values.Stamp

var errStamp = fmt.Errorf("must be canonical base64 of exactly %d bytes", len(Stamp{}))

// MarshalText encodes the raw bytes.
func (s Stamp) MarshalText() ([]byte, error) { return []byte(canonical.Encode(s[:])), nil }

// UnmarshalText decodes exactly 8 bytes.
func (s *Stamp) UnmarshalText(text []byte) error {
	raw, err := canonical.Decode(string(text))
	if err != nil || len(raw) != len(s) {
		return errStamp
	}
	*s = Stamp(raw)
	return nil
}

// IsUnset reports whether the stamp sets no bound.
func (s Stamp) IsUnset() bool { return s == Stamp{} }
