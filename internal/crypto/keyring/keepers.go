package keyring

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
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

// open has a data key opened as it is stored, and says whether it was the previous key
// that did it. ErrWrongKey, or ErrWrongKeys, where none does.
func (k keepers) open(ctx context.Context, r *ring, d *dataKey) (previous bool, err error) {
	wrapped := d.wrapped
	if wrapped == nil {
		wrapped = r.stored
	}
	plain, previous, err := k.unwrap(ctx, wrapped)
	defer clear(plain)
	if err == nil && d.wrapped != nil && !isSealed(plain, d.id) {
		return false, ErrWrongKey
	}
	return previous, err
}

// all is open for each data key of a ring that is still there.
func (k keepers) all(ctx context.Context, r *ring) (previous bool, err error) {
	for _, d := range r.keys {
		if d.state == keyserver.DataKeyRetired {
			continue
		}
		by, err := k.open(ctx, r, d)
		if err != nil {
			return false, err
		}
		previous = previous || by
	}
	return previous, nil
}

// alone are the key-encryption key without the previous one.
func (k keepers) alone() keepers { return keepers{current: k.current} }

// Behind is why the newest data key of the database does not open here, if it does not.
func (c *Keyring) Behind() error {
	if f := c.behind.Load(); f != nil {
		return f
	}
	return nil
}

// Doubted reports, once, whether the key-encryption key has failed since it was asked last.
func (c *Keyring) Doubted() bool { return c.doubted.Swap(false) }

// Alive asks whoever has the key-encryption key whether they are there, without using it:
// nil where only its use would tell. The one of before is needed by nobody but a start.
func (c *Keyring) Alive(ctx context.Context) error {
	if c.keepers.current.alive == nil {
		return nil
	}
	if err := c.keepers.current.alive(ctx); err != nil {
		return away(err)
	}
	return nil
}

func away(err error) error {
	return fault.New(fault.NotReady, "the key-encryption key does not answer").Because(err)
}

// Answers says whether the key-encryption key opens the data keys as they are stored now.
// The warning is for a replica that was left behind: the data keys that it holds are
// wrapped by another key-encryption key since, which others have.
func (c *Keyring) Answers(ctx context.Context) (warning string, err error) {
	r := c.ring.Load()
	previous, err := c.keepers.all(ctx, r)
	switch {
	case err == nil && !previous && !r.own:
		known := *r
		known.own = true
		c.ring.CompareAndSwap(r, &known)
		return "", nil
	case err == nil:
		return "", nil
	case !saysNo(err):
		return "", away(err)
	case r.own:
		return "", fault.New(fault.NotReady, anotherKey).Because(err)
	}
	return "another replica has wrapped the data keys by another key-encryption key, which this one has not got: it goes on until the next data key and cannot start again; give it the same --kek", nil
}

// anotherKey is said where the key-encryption key is well and does not open what it should.
const anotherKey = "the key-encryption key is another one than the one that wraps the data keys: " +
	"check what --kek names, and whether a KMS plugin came back with another key"

func saysNo(err error) bool { return errors.Is(err, ErrWrongKey) || errors.Is(err, ErrWrongKeys) }

// KEK says of the key-encryption key what may be known. The fingerprint is a MAC under
// a secret that is wrapped with the data keys, so that nobody can try keys against it
// who could not open the database with the right one. Whether the previous one is needed
// is asked each time, because others wrap the data keys, too.
func (c *Keyring) KEK(ctx context.Context) keyserver.KEK {
	r := c.ring.Load()
	h := hmac.New(sha256.New, r.label[:])
	_, _ = h.Write(c.keepers.current.identity) // never fails
	out := keyserver.KEK{Scheme: c.keepers.current.scheme, Fingerprint: hex.EncodeToString(h.Sum(nil)[:8])}
	if c.keepers.previous != nil {
		_, err := c.keepers.alone().all(ctx, r)
		needed := err != nil
		out.PreviousNeeded = &needed
	}
	return out
}
