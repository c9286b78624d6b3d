package keyring

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Wrap encrypts the bytes of a key under the active data key. The result can be decrypted only for the same key id and
// system id. Call Wrap in the transaction that stores the result. Otherwise the data key could be retired before the
// result is stored.
func (c *Keyring) Wrap(key keyserver.ID, system keyserver.SystemID, plain []byte) ([]byte, error) {
	return c.ring.Load().active.seals(key, system, plain), nil
}

func (k *dataKey) seals(key keyserver.ID, system keyserver.SystemID, plain []byte) []byte {
	wrapped := append(make([]byte, 0, 1+idLen+nonceLen+len(plain)+tagLen), Prefix(k.id)...)
	bound := boundTo(wrapped, key, system)
	return k.aead.Seal(wrapped, nil, plain, bound) //nolint:gosec // the AEAD draws the nonce itself and takes none
}

// Prefix returns the first bytes of every key that is wrapped under the given data key.
func Prefix(dataKey keyserver.ID) []byte {
	if dataKey.IsZero() {
		return []byte{wrapVersionAlone}
	}
	return append([]byte{wrapVersion}, dataKey[:]...)
}

// split returns the id of the data key in a wrapped key, and the length of the prefix.
func split(wrapped []byte) (id keyserver.ID, prefix int, ok bool) {
	switch {
	case len(wrapped) >= 1+nonceLen+tagLen && wrapped[0] == wrapVersionAlone:
		return id, 1, true
	case len(wrapped) >= 1+idLen+nonceLen+tagLen && wrapped[0] == wrapVersion:
		copy(id[:], wrapped[1:])
		return id, 1 + idLen, true
	}
	return id, 0, false
}

// Unwrap decrypts a stored key. The caller clears the result. It returns ErrDamaged if the bytes are not the result of
// Wrap for this key. If the data key is unknown, Unwrap reads the data keys again, because another process may have
// created this data key.
func (c *Keyring) Unwrap(key keyserver.ID, system keyserver.SystemID, wrapped []byte) ([]byte, error) {
	id, prefix, ok := split(wrapped)
	if !ok {
		return nil, fmt.Errorf("key %s: %w", key, ErrDamaged)
	}
	under := c.ring.Load().find(id)
	if under == nil {
		ctx, cancel := context.WithTimeout(context.Background(), reloadTimeout)
		defer cancel()
		if _, err := c.Reload(ctx); err != nil {
			return nil, err
		}
		if under = c.ring.Load().find(id); under == nil {
			return nil, fmt.Errorf("key %s is encrypted by the data key %s, which is missing: %w", key, id, ErrDamaged)
		}
	}
	plain, err := under.aead.Open(nil, nil, wrapped[prefix:], boundTo(wrapped[:prefix], key, system))
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", key, ErrDamaged)
	}
	return plain, nil
}

// reloadTimeout is the time limit for reading the data keys again if a key is under an unknown data key.
const reloadTimeout = 5 * time.Second

// Rewrap encrypts a wrapped key under the active data key. It returns false if the key is already wrapped under this
// data key.
func (c *Keyring) Rewrap(key keyserver.ID, system keyserver.SystemID, wrapped []byte) ([]byte, bool, error) {
	if bytes.HasPrefix(wrapped, Prefix(c.ring.Load().active.id)) || len(wrapped) == 0 {
		return wrapped, false, nil
	}
	plain, err := c.Unwrap(key, system, wrapped)
	if err != nil {
		return nil, false, err
	}
	defer clear(plain)
	out, err := c.Wrap(key, system, plain)
	return out, true, err
}
