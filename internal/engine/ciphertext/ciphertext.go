// Package ciphertext encrypts texts under AES-256 keys and defines the layout of ciphertexts. A ciphertext is
//
//	1 byte    the version of the layout, 1
//	8 bytes   the id of the key
//	12 bytes  the nonce, random
//	n bytes   the text, encrypted
//	16 bytes  the tag
//
// by AES-256-GCM (NIST SP 800-38D). The authenticated data are the first 9 bytes and the associated data of the caller.
// So a ciphertext is valid only with its own key id and version.
package ciphertext

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

const (
	version   = 1
	headerLen = 1 + 8
)

// ErrForm means that the bytes are not a ciphertext of a known version.
var ErrForm = errors.New("it is not a ciphertext of a known version")

// ErrSealed means that a ciphertext cannot be decrypted. Either the ciphertext, its key or the associated data differ
// from those of the encryption. It is unknown which of the three differs.
var ErrSealed = errors.New("the ciphertext cannot be decrypted")

// AEAD is AES-256-GCM with one key. It keeps the expanded key in memory.
type AEAD struct{ gcm cipher.AEAD }

// New expands a key. The caller may wipe the key afterwards.
func New(key []byte) (*AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	// The cryptographic module generates the nonces, as FIPS 140-3 requires.
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &AEAD{gcm}, nil
}

// String hides the key from every formatting verb.
func (a *AEAD) String() string { return "AES-256-GCM" }

// GoString hides the key from %#v.
func (a *AEAD) GoString() string { return a.String() }

// Seal encrypts a text under the key with the given id.
func (a *AEAD) Seal(id keyserver.ID, plain, associated []byte) []byte {
	sealed := append(make([]byte, 0, keyserver.CipherOverhead+len(plain)), version)
	sealed = append(sealed, id[:]...)
	return a.gcm.Seal(sealed, nil, plain, bound(sealed, associated)) //nolint:gosec // the AEAD draws the nonce itself and accepts none
}

// Open decrypts a ciphertext. It returns ErrForm if sealed is not a ciphertext. It returns ErrSealed if sealed was
// changed, or was made with another key or other associated data.
func (a *AEAD) Open(sealed, associated []byte) ([]byte, error) {
	if _, err := KeyOf(sealed); err != nil {
		return nil, err
	}
	plain, err := a.gcm.Open(nil, nil, sealed[headerLen:], bound(sealed[:headerLen], associated))
	if err != nil {
		return nil, ErrSealed
	}
	return plain, nil
}

// KeyOf returns the key id in a ciphertext. The id is not authenticated; Open does that.
func KeyOf(sealed []byte) (id keyserver.ID, err error) {
	if len(sealed) < keyserver.CipherOverhead || sealed[0] != version {
		return id, ErrForm
	}
	copy(id[:], sealed[1:headerLen])
	return id, nil
}

// Named returns a text in the form of the shortest ciphertext with the given key id. No key can decrypt it.
func Named(id keyserver.ID) []byte {
	sealed := make([]byte, keyserver.CipherOverhead)
	sealed[0] = version
	copy(sealed[1:], id[:])
	return sealed
}

// bound returns the authenticated data: the header and the associated data. The header has a fixed length, so header
// and associated data cannot be confused.
func bound(header, associated []byte) []byte {
	return append(append(make([]byte, 0, headerLen+len(associated)), header...), associated...)
}
