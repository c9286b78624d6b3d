package schema

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/canonical"
)

// Rights is the bitmask of an access control entry. A request may send the
// integer or an array of names; an answer is the integer. A bit or name that
// stands for no right is refused, never dropped.
type Rights keyserver.Rights

var errRights = fmt.Errorf("must be an integer from 0 to %d or an array of names out of %s",
	keyserver.AllRights, strings.Join(keyserver.RightNames(), ", "))

// MarshalJSON answers the bitmask.
func (r Rights) MarshalJSON() ([]byte, error) { return strconv.AppendUint(nil, uint64(r), 10), nil }

// UnmarshalJSON reads the bitmask or the names.
func (r *Rights) UnmarshalJSON(value []byte) error {
	if len(value) > 0 && value[0] == '[' {
		return r.unmarshalNames(value)
	}
	n, err := parseInteger(value, uint64(keyserver.AllRights))
	if err != nil {
		return errRights
	}
	*r = Rights(n & uint64(keyserver.AllRights))
	return nil
}

func (r *Rights) unmarshalNames(value []byte) error {
	// Pointers, because encoding/json would read a null as an empty name.
	var names []*string
	if err := json.Unmarshal(value, &names); err != nil {
		return errRights
	}
	var all keyserver.Rights
	for _, name := range names {
		if name == nil {
			return errRights
		}
		bit, ok := keyserver.ParseRight(*name)
		if !ok {
			return errRights
		}
		all |= bit
	}
	*r = Rights(all)
	return nil
}

// Names returns the names of the bits that are set.
func (r Rights) Names() []string { return keyserver.Rights(r).Names() }

// RightNamed returns the right of a name, 0 where the name stands for none.
func RightNamed(name string) Rights {
	bit, _ := keyserver.ParseRight(name)
	return Rights(bit)
}

// Widen returns what a key server holds when r is asked for.
func (r Rights) Widen() Rights { return Rights(keyserver.Rights(r).Widen()) }

// Has reports whether all bits of want are held: the only sound test, because
// a key server widens what is asked for.
func (r Rights) Has(want Rights) bool { return keyserver.Rights(r).Has(keyserver.Rights(want)) }

// Stamp is a raw 8-byte time in canonical base64. All zero means unset.
type Stamp keyserver.Stamp

var errStamp = fmt.Errorf("must be canonical base64 of exactly %d bytes", len(Stamp{}))

// MarshalText spells the raw bytes.
func (s Stamp) MarshalText() ([]byte, error) { return []byte(canonical.Encode(s[:])), nil }

// UnmarshalText reads exactly 8 bytes.
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
