// Package password hashes and checks passwords with argon2id (RFC 9106). An encoded hash contains its own cost. Each
// running hash uses its complete memory cost and one core. Enter a Gate before calling Hash, Rehash or Check.
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

// Cost is the cost of one hash. The zero Cost means DefaultCost.
type Cost struct {
	MemoryKiB uint32
	Passes    uint32
	Lanes     uint8
}

// DefaultCost returns the default cost: 19 MiB, two passes, one lane. This is the minimum of OWASP's recommendation for
// argon2id.
func DefaultCost() Cost { return Cost{MemoryKiB: 19 * 1024, Passes: 2, Lanes: 1} }

// Limits of a cost, so that no stored hash can take gigabytes or minutes.
const (
	maxMemoryKiB = 256 * 1024
	maxPasses    = 16
	maxLanes     = 16
	// minMemoryPerLane is the minimum of argon2, which would silently raise a smaller value.
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

// Rehash returns the hash of a password at this cost. The password must match encoded. The salt does not change, so
// that Same recognizes both hashes as hashes of one password.
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

// Check reports whether password matches the encoded hash, with the cost of that hash. An empty hash means "no such
// name": Check then computes a hash with cost c and returns false.
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

// Outdated reports whether a valid hash has another cost than c.
func (c Cost) Outdated(encoded string) bool {
	h, err := parse(encoded)
	return err == nil && h.cost != c.orDefault()
}

// Same reports whether two hashes are equal or Rehash created one hash from the other hash. If a user sets the same
// password again, the new hash has a new salt, so Same returns false.
func Same(a, b string) bool {
	if a == b {
		return true
	}
	one, errOne := parse(a)
	other, errOther := parse(b)
	return errOne == nil && errOther == nil && one.cost != other.cost && string(one.salt) == string(other.salt)
}

// Lasting returns the salt of a hash. Rehash does not change the salt, but each new password has another salt. If
// encoded is not a hash, Lasting returns it unchanged.
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

// parse parses the output of String. It rejects any other text and a cost outside of the limits.
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
