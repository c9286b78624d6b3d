package custody

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// keepers are the key-encryption key, and the one whose place it takes, if any.
type keepers struct{ current, previous *Keeper }

func (k keepers) wrap(ctx context.Context, plain []byte) ([]byte, error) {
	wrapped, err := k.current.keeper.Encrypt(ctx, plain)
	if err != nil {
		return nil, fmt.Errorf("wrap the data key: %w", remote(err))
	}
	return wrapped, nil
}

// unwrap answers the bytes of a data key, and whether it was the previous key that
// opened them. The caller wipes them.
func (k keepers) unwrap(ctx context.Context, wrapped []byte) (plain []byte, previous bool, err error) {
	plain, err = k.current.keeper.Decrypt(ctx, wrapped)
	switch {
	case err == nil:
		return plain, false, nil
	case isRemote(err):
		return nil, false, fmt.Errorf("unwrap the data key: %w", remote(err))
	case k.previous == nil:
		return nil, false, ErrWrongKey
	}
	plain, err = k.previous.keeper.Decrypt(ctx, wrapped)
	switch {
	case err == nil:
		return plain, true, nil
	case isRemote(err):
		return nil, false, fmt.Errorf("unwrap the data key by --kek-previous: %w", remote(err))
	}
	return nil, false, ErrWrongKeys
}

// key answers the bytes of a data key of a ring, or of the one that alone was the
// setting. The caller wipes them.
func (k keepers) key(ctx context.Context, wrapped, alone []byte) ([]byte, error) {
	if wrapped == nil {
		wrapped = alone
	}
	plain, _, err := k.unwrap(ctx, wrapped)
	if err != nil {
		return nil, err
	}
	if len(plain) < dataKeyLen {
		return nil, ErrWrongKey
	}
	return plain[len(plain)-dataKeyLen:], nil
}

// KEK says of the key-encryption key what may be known. The fingerprint is a MAC under
// a secret that is wrapped with the data keys, so that nobody can try keys against it
// who could not open the database with the right one.
func (c *Custodian) KEK() keyserver.KEK {
	label := c.ring.Load().label
	h := hmac.New(sha256.New, label[:])
	_, _ = h.Write(c.keepers.current.identity) // never fails
	out := keyserver.KEK{Scheme: c.keepers.current.scheme, Fingerprint: hex.EncodeToString(h.Sum(nil)[:8])}
	if c.keepers.previous != nil {
		needed := c.ring.Load().foreign
		out.PreviousNeeded = &needed
	}
	return out
}
