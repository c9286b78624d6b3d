package keys

import (
	"crypto/hmac"
	"crypto/sha512"
	"errors"
	"hash"
	"sync"
)

// errNoClone cannot happen with the standard library's SHA-384.
var errNoClone = errors.New("the HMAC state cannot be cloned")

// macs makes HMAC-SHA384 states for one key. It keeps only the keyed state. The plain bytes
// are wiped as soon as the state is made, so no cache has them. States are pooled, because
// keying one costs more than the HMAC of a short message.
type macs struct {
	pool sync.Pool
}

// newMACs makes a keyed state and wipes key.
func newMACs(key []byte) (*macs, error) {
	defer clear(key)
	template, ok := hmac.New(sha512.New384, key).(hash.Cloner)
	if !ok {
		return nil, errNoClone
	}
	// The first Reset replaces the padded key inside the state by the two
	// intermediate hashes (FIPS 198-1, section 6).
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

// take returns a state without a message. The caller returns it with put.
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
