// Package password hashes and checks passwords with argon2id (RFC 9106). The
// work is constant for a given cost. Each hash under way holds its whole memory
// cost: those of Hash are bounded here, those of Check by its caller, who knows
// whose turn it is.
package password

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"runtime"

	"golang.org/x/crypto/argon2"
)

// The cost of a hash: 19 MiB, two passes, one lane, the least that OWASP's
// password storage advice accepts for argon2id.
const (
	memoryKiB = 19 * 1024
	passes    = 2
	lanes     = 1
	saltLen   = 16
	hashLen   = 32
)

// slots bounds the hashes that are made at once in this process.
var slots = make(chan struct{}, runtime.GOMAXPROCS(0))

// decoy is checked for names that do not exist, so that they take as long.
var decoy = format(make([]byte, saltLen), make([]byte, hashLen))

var errFormat = errors.New("the stored password hash is malformed")

// Hash returns the encoded hash of a password under a fresh salt.
func Hash(ctx context.Context, password string, random io.Reader) (string, error) {
	salt := make([]byte, saltLen)
	if _, err := io.ReadFull(random, salt); err != nil {
		return "", fmt.Errorf("draw a salt: %w", err)
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	return format(salt, derive(password, salt)), nil
}

// Check reports whether password matches the encoded hash. An empty hash
// stands for "no such name": it takes the same work and never matches.
func Check(ctx context.Context, password, encoded string) (bool, error) {
	known := encoded != ""
	if !known {
		encoded = decoy
	}
	salt, want, err := parse(encoded)
	if err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	return subtle.ConstantTimeCompare(derive(password, salt), want) == 1 && known, nil
}

func derive(password string, salt []byte) []byte {
	return argon2.IDKey([]byte(password), salt, passes, memoryKiB, lanes, hashLen)
}

var b64 = base64.RawStdEncoding

// format writes the usual PHC string, so that the cost can change later.
func format(salt, sum []byte) string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, memoryKiB, passes, lanes,
		b64.EncodeToString(salt), b64.EncodeToString(sum))
}

func parse(encoded string) (salt, sum []byte, err error) {
	prefix := fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$", argon2.Version, memoryKiB, passes, lanes)
	saltText := b64.EncodedLen(saltLen)
	if len(encoded) != len(prefix)+saltText+1+b64.EncodedLen(hashLen) || encoded[:len(prefix)] != prefix {
		return nil, nil, errFormat
	}
	rest := encoded[len(prefix):]
	if salt, err = b64.DecodeString(rest[:saltText]); err != nil {
		return nil, nil, errFormat
	}
	if sum, err = b64.DecodeString(rest[saltText+1:]); err != nil {
		return nil, nil, errFormat
	}
	return salt, sum, nil
}
