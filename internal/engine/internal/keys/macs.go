package keys

import (
	"crypto/hmac"
	"crypto/sha512"
	"errors"
	"hash"
	"sync"
)

// errNoClone cannot occur with SHA-384 of the standard library.
var errNoClone = errors.New("the HMAC state cannot be cloned")

// macs makes HMAC-SHA384 states for one key. It keeps only the state with the key. The bytes of the key are wiped after
// the first state is made, so no cache has them. States are pooled, because a new state with a key costs more than the
// HMAC of a short message.
type macs struct {
	pool sync.Pool
}

// newMACs makes the first state with the key, and wipes key.
func newMACs(key []byte) (*macs, error) {
	defer clear(key)
	template, ok := hmac.New(sha512.New384, key).(hash.Cloner)
	if !ok {
		return nil, errNoClone
	}
	// The first Reset replaces the padded key in the state by the two intermediate hashes (FIPS 198-1, section 6).
	template.Reset()
	m := &macs{}
	m.pool.New = func() any {
		h, err := template.Clone()
		if err != nil {
			return nil
		}
		return h
	}
	return m, nil
}

// take returns a state for a new message. The caller returns the state with put.
func (m *macs) take() (hash.Hash, error) {
	h, ok := m.pool.Get().(hash.Hash)
	if !ok {
		return nil, errNoClone
	}
	return h, nil
}

func (m *macs) put(h hash.Hash) {
	h.Reset()
	m.pool.Put(h)
}
