package keyserver

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/canonical"
)

// ID is the 8-byte identifier of an object. The zero ID names nothing. It has
// three spellings that are never guessed from their looks: each caller says
// which one it reads.
type ID [8]byte

// ErrSpelling is wrapped by every refusal of an identifier's spelling.
var ErrSpelling = errors.New("malformed identifier")

// NewID draws an id from random. It is never zero.
func NewID(random io.Reader) (ID, error) {
	var id ID
	for id == (ID{}) {
		if _, err := io.ReadFull(random, id[:]); err != nil {
			return ID{}, fmt.Errorf("draw an identifier: %w", err)
		}
	}
	return id, nil
}

// ParseHexID reads 16 hexadecimal digits of either case.
func ParseHexID(s string) (ID, error) {
	var id ID
	if len(s) != 2*len(id) {
		return ID{}, fmt.Errorf("%w: want 16 hexadecimal digits", ErrSpelling)
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return ID{}, fmt.Errorf("%w: want 16 hexadecimal digits", ErrSpelling)
	}
	return id, nil
}

// ParseDecimalID reads an unsigned decimal number without sign, leading zero
// or space, up to 2^64-1.
func ParseDecimalID(s string) (ID, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != s {
		return ID{}, fmt.Errorf("%w: want a decimal number from 0 to 18446744073709551615 without leading zeros", ErrSpelling)
	}
	return IDFromUint64(n), nil
}

// ParseBase64ID reads the canonical base64 of 8 bytes.
func ParseBase64ID(s string) (ID, error) {
	b, err := canonical.Decode(s)
	if err != nil || len(b) != len(ID{}) {
		return ID{}, fmt.Errorf("%w: want canonical base64 of 8 bytes", ErrSpelling)
	}
	return ID(b), nil
}

// IDFromUint64 returns the id whose decimal spelling is n.
func IDFromUint64(n uint64) ID {
	var id ID
	binary.BigEndian.PutUint64(id[:], n)
	return id
}

// Uint64 returns the number that the decimal spelling shows.
func (id ID) Uint64() uint64 { return binary.BigEndian.Uint64(id[:]) }

// IsZero reports whether the id names nothing.
func (id ID) IsZero() bool { return id == ID{} }

// Hex returns 16 lower-case hexadecimal digits, the spelling of {id} path segments.
func (id ID) Hex() string { return hex.EncodeToString(id[:]) }

// Decimal returns the spelling of principalId.
func (id ID) Decimal() string { return strconv.FormatUint(id.Uint64(), 10) }

// Base64 returns canonical base64, the spelling of certificateId.
func (id ID) Base64() string { return canonical.Encode(id[:]) }

// String returns the hexadecimal spelling, for logs.
func (id ID) String() string { return id.Hex() }

// SystemID identifies a key server. It fits 4 bytes because a hidden link
// spends 4 on it.
type SystemID uint32

// PrincipalRef names a principal anywhere: the pair that ACL routes take.
type PrincipalRef struct {
	System SystemID
	ID     ID
}

// String returns "system/decimal id", for logs and audit objects.
func (r PrincipalRef) String() string {
	return strconv.FormatUint(uint64(r.System), 10) + "/" + r.ID.Decimal()
}
