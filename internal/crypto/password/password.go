// Package password hashes and checks passwords with argon2id (RFC 9106). A hash contains
// its own cost and is checked with it. Each running hash uses its complete memory cost
// and a core. Callers of Hash, Rehash and Check enter a Gate first.
package password

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/crypto/argon2"
)

// Cost is the work of one hash. The zero Cost means DefaultCost.
type Cost struct {
	MemoryKiB uint32
	Passes    uint32
	Lanes     uint8
}

// DefaultCost returns the cost of every key server: 19 MiB, two passes, one lane. This is the
// minimum of OWASP's recommendation for argon2id.
func DefaultCost() Cost { return Cost{MemoryKiB: 19 * 1024, Passes: 2, Lanes: 1} }

// Bounds of a cost, so that no stored hash can take gigabytes or minutes.
const (
	maxMemoryKiB = 256 * 1024
	maxPasses    = 16
	maxLanes     = 16
	// minMemoryPerLane is argon2's own minimum; argon2 would silently raise a smaller
	// value.
	minMemoryPerLane = 8
)

const (
	saltLen = 16
	hashLen = 32
)

var (
	errFormat = errors.New("the stored password hash is malformed")
	errCost   = errors.New("the cost parameters of a password hash are outside the allowed range")
)

// Hash returns the encoded hash of a password with a new salt.
func (c Cost) Hash(ctx context.Context, password string, random io.Reader) (string, error) {
	salt := make([]byte, saltLen)
	if _, err := io.ReadFull(random, salt); err != nil {
		return "", fmt.Errorf("generate a salt: %w", err)
	}
	return c.hash(ctx, password, salt)
}

// Rehash returns the hash of a password at this cost. The password must match encoded.
// The salt stays, so that Same recognizes both hashes as one password.
func (c Cost) Rehash(ctx context.Context, password, encoded string) (string, error) {
	old, err := parse(encoded)
	if err != nil {
		return "", err
	}
	return c.hash(ctx, password, old.salt)
}

func (c Cost) hash(ctx context.Context, password string, salt []byte) (string, error) {
	c = c.orDefault()
	if !c.bounded() {
		return "", errCost
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return stored{c, salt, c.derive(password, salt)}.String(), nil
}

// Check reports whether password matches the encoded hash, at the cost of that hash. An
// empty hash means "no such name": it takes the work of this cost and never matches.
func (c Cost) Check(ctx context.Context, password, encoded string) (bool, error) {
	known := encoded != ""
	h := stored{c.orDefault(), make([]byte, saltLen), make([]byte, hashLen)}
	if known {
		var err error
		if h, err = parse(encoded); err != nil {
			return false, err
		}
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	return subtle.ConstantTimeCompare(h.cost.derive(password, h.salt), h.sum) == 1 && known, nil
}

// Outdated reports whether a well-formed hash has another cost than this one.
func (c Cost) Outdated(encoded string) bool {
	h, err := parse(encoded)
	return err == nil && h.cost != c.orDefault()
}

// Same reports whether two hashes belong to the same setting of a password: they are
// equal, or Rehash made one from the other. Setting a password draws a new salt, even if
// the password stays the same.
func Same(a, b string) bool {
	if a == b {
		return true
	}
	one, errOne := parse(a)
	other, errOther := parse(b)
	return errOne == nil && errOther == nil && one.cost != other.cost && string(one.salt) == string(other.salt)
}

// Lasting returns the salt of a hash. Rehash keeps it, and no other setting of a password
// has it. If encoded is no hash, Lasting returns it unchanged.
func Lasting(encoded string) string {
	h, err := parse(encoded)
	if err != nil {
		return encoded
	}
	return b64.EncodeToString(h.salt)
}

func (c Cost) orDefault() Cost {
	if c == (Cost{}) {
		return DefaultCost()
	}
	return c
}

func (c Cost) bounded() bool {
	return c.Passes >= 1 && c.Passes <= maxPasses && c.Lanes >= 1 && c.Lanes <= maxLanes &&
		c.MemoryKiB >= minMemoryPerLane*uint32(c.Lanes) && c.MemoryKiB <= maxMemoryKiB
}

func (c Cost) derive(password string, salt []byte) []byte {
	return argon2.IDKey([]byte(password), salt, c.Passes, c.MemoryKiB, c.Lanes, hashLen)
}

// stored is an encoded hash in its parts.
type stored struct {
	cost      Cost
	salt, sum []byte
}

var b64 = base64.RawStdEncoding

// String returns the hash in the PHC format.
func (h stored) String() string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.cost.MemoryKiB, h.cost.Passes, h.cost.Lanes,
		b64.EncodeToString(h.salt), b64.EncodeToString(h.sum))
}

// parse accepts only the output of String with a cost within the bounds.
func parse(encoded string) (stored, error) {
	parts := strings.Split(encoded, "$")
	if len(parts) != 6 {
		return stored{}, errFormat
	}
	var h stored
	var errSalt, errSum error
	_, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &h.cost.MemoryKiB, &h.cost.Passes, &h.cost.Lanes)
	h.salt, errSalt = b64.DecodeString(parts[4])
	h.sum, errSum = b64.DecodeString(parts[5])
	if errors.Join(err, errSalt, errSum) != nil || len(h.salt) != saltLen || len(h.sum) != hashLen || h.String() != encoded {
		return stored{}, errFormat
	}
	if !h.cost.bounded() {
		return stored{}, fmt.Errorf("%w: m=%d,t=%d,p=%d", errCost, h.cost.MemoryKiB, h.cost.Passes, h.cost.Lanes)
	}
	return h, nil
}
