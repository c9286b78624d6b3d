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

// providers contains the current key-encryption key, and the previous key-encryption key while the current one replaces
// it.
type providers struct{ current, previous *Provider }

func (k providers) wrap(ctx context.Context, plain []byte) ([]byte, error) {
	wrapped, err := k.current.keeper.Encrypt(ctx, plain)
	if err != nil {
		return nil, fmt.Errorf("wrap the data key: %w", remote(err))
	}
	return wrapped, nil
}

// unwrap returns the bytes of a data key, and whether the previous key-encryption key opened it. The caller clears the
// bytes.
func (k providers) unwrap(ctx context.Context, wrapped []byte) (plain []byte, previous bool, err error) {
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
		return nil, false, fmt.Errorf("unwrap the data key with --kek-previous: %w", remote(err))
	}
	return nil, false, ErrWrongKeys
}

// key returns the bytes of a data key. For the only data key of a database without a ring (openAlone), wrapped is nil
// and alone is the wrapped data key. The caller clears the bytes.
func (k providers) key(ctx context.Context, wrapped, alone []byte) ([]byte, error) {
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

// open checks that a stored data key can be opened, and reports whether the previous key-encryption key opened it. It
// returns ErrWrongKey or ErrWrongKeys if it cannot be opened.
func (k providers) open(ctx context.Context, r *ring, d *dataKey) (previous bool, err error) {
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

// all calls open for each data key, except for retired data keys.
func (k providers) all(ctx context.Context, r *ring) (previous bool, err error) {
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

// alone returns the providers without the previous key-encryption key.
func (k providers) alone() providers { return providers{current: k.current} }

// NewestKeyError returns the reason why this process cannot open the newest data key of the database, or nil if it can.
func (c *Keyring) NewestKeyError() error {
	if f := c.newestKeyError.Load(); f != nil {
		return f
	}
	return nil
}

// Doubted reports whether the key-encryption key has failed since the last call of Doubted.
func (c *Keyring) Doubted() bool { return c.kekFailed.Swap(false) }

// Ping checks the connection to the KMS provider without using the key. It returns nil if the provider has no such
// check. The previous key is not checked, because after the start, only data keys that another replica wrapped with the
// previous key need it.
func (c *Keyring) Ping(ctx context.Context) error {
	if c.providers.current.alive == nil {
		return nil
	}
	if err := c.providers.current.alive(ctx); err != nil {
		return unavailableFault(err)
	}
	return nil
}

func unavailableFault(err error) error {
	return fault.New(fault.NotReady, "the KMS provider of the key-encryption key is not available").Because(err)
}

// CheckKEK checks that the key-encryption key opens the stored data keys. It returns a warning if another replica has
// wrapped them with a key-encryption key that this replica does not have.
func (c *Keyring) CheckKEK(ctx context.Context) (warning string, err error) {
	r := c.ring.Load()
	previous, err := c.providers.all(ctx, r)
	switch {
	case err == nil && !previous && !r.own:
		known := *r
		known.own = true
		c.ring.CompareAndSwap(r, &known)
		return "", nil
	case err == nil:
		return "", nil
	case !saysNo(err):
		return "", unavailableFault(err)
	case r.own:
		return "", fault.New(fault.NotReady, anotherKey).Because(err)
	}
	return "another replica has wrapped the data keys with a key-encryption key that this replica does not have: this replica works until the next data key, but cannot start again; give it the same --kek", nil
}

// anotherKey is the message if the key-encryption key is available, but does not open the data keys.
const anotherKey = "the key-encryption key does not open the data keys; " +
	"check --kek, and whether a KMS plugin was restarted with another key"

func saysNo(err error) bool { return errors.Is(err, ErrWrongKey) || errors.Is(err, ErrWrongKeys) }

// KEK returns the public information about the key-encryption key. The fingerprint is a MAC with a secret key that is
// wrapped with the data keys, so only a process that can open the database can compute it for a guessed key.
// PreviousNeeded is computed at each call, because other replicas may wrap data keys again.
func (c *Keyring) KEK(ctx context.Context) keyserver.KEK {
	r := c.ring.Load()
	h := hmac.New(sha256.New, r.label[:])
	_, _ = h.Write(c.providers.current.identity) // never fails
	out := keyserver.KEK{Scheme: c.providers.current.scheme, Fingerprint: hex.EncodeToString(h.Sum(nil)[:8])}
	if c.providers.previous != nil {
		_, err := c.providers.alone().all(ctx, r)
		needed := err != nil
		out.PreviousNeeded = &needed
	}
	return out
}
