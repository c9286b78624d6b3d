// Package ciphertext encrypts texts under AES-256 keys, and lays out what comes of
// that. A ciphertext is
//
//	1 byte    the version of the layout, 1
//	8 bytes   the id of the key
//	12 bytes  the nonce, random
//	n bytes   the text, encrypted
//	16 bytes  the tag
//
// by AES-256-GCM (NIST SP 800-38D). What is authenticated besides the text is the
// first 9 bytes, so that no ciphertext can be passed off as one of another key or
// version, and behind them the associated data.
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

// ErrForm is of bytes that are no ciphertext at all.
var ErrForm = errors.New("that is no ciphertext of a version that is known")

// ErrSealed is of a ciphertext that does not open: it, its key or the associated
// data are not what they were. Which of them is not known.
var ErrSealed = errors.New("the ciphertext does not open")

// AEAD is AES-256-GCM under one key. It keeps the key, expanded.
type AEAD struct{ gcm cipher.AEAD }

// New expands a key, which may be wiped afterwards.
func New(key []byte) (*AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	// Nonces are drawn inside the cryptographic module, as FIPS 140-3 wants it.
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

// Seal encrypts a text under the key that id names.
func (a *AEAD) Seal(id keyserver.ID, plain, associated []byte) []byte {
	sealed := append(make([]byte, 0, keyserver.CipherOverhead+len(plain)), version)
	sealed = append(sealed, id[:]...)
	return a.gcm.Seal(sealed, nil, plain, bound(sealed, associated)) //nolint:gosec // the AEAD draws the nonce itself and takes none
}

// Open decrypts. ErrForm where it is no ciphertext, ErrSealed where it is not one
// of this key with that associated data.
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

// KeyOf is the key that a ciphertext says it was made with, which is known to be
// true only once it opens.
func KeyOf(sealed []byte) (id keyserver.ID, err error) {
	if len(sealed) < keyserver.CipherOverhead || sealed[0] != version {
		return id, ErrForm
	}
	copy(id[:], sealed[1:headerLen])
	return id, nil
}

// Named is as long as the shortest ciphertext, says that it was made with a key, and opens
// with none.
func Named(id keyserver.ID) []byte {
	sealed := make([]byte, keyserver.CipherOverhead)
	sealed[0] = version
	copy(sealed[1:], id[:])
	return sealed
}

// bound is what is authenticated beside the text. The header is of one length, so
// that it does not run into what follows.
func bound(header, associated []byte) []byte {
	return append(append(make([]byte, 0, headerLen+len(associated)), header...), associated...)
}
