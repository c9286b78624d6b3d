package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ThalesGroup/crypto11"
)

const (
	// callTimeout is the time limit of one call of the library, which may wait for a device.
	callTimeout = 4 * time.Second
	// places is the maximum number of concurrent calls of the library. Calls that hang count, too.
	places    = 8
	keyBits   = 256
	nonceSize = 12
	idSize    = 8
)

var (
	// errHangs means that a call of the library does not return.
	errHangs = errors.New("the PKCS#11 library does not answer")
	// errNotIts means that no key of the token has wrapped the ciphertext.
	errNotIts = errors.New("no key of this token wrapped it")
)

type place struct {
	library, token, pinFile, label string
}

type token struct {
	place
	session *crypto11.Context // logged in
	key     *crypto11.SecretKey
	keyID   []byte
	free    chan struct{} // limits the concurrent calls
}

func open(p place) (*token, error) {
	for _, flag := range []struct{ name, value string }{{"--library", p.library}, {"--token", p.token}, {"--pin-file", p.pinFile}, {"--key", p.label}} {
		if flag.value == "" {
			return nil, fmt.Errorf("%s is needed", flag.name)
		}
	}
	pin, err := os.ReadFile(p.pinFile)
	if err != nil {
		return nil, fmt.Errorf("--pin-file: %w", err)
	}
	if _, err := os.Stat(p.library); err != nil {
		return nil, fmt.Errorf("--library: %w", err)
	}
	session, err := crypto11.Configure(&crypto11.Config{
		Path: p.library, TokenLabel: p.token, Pin: strings.TrimRight(string(pin), "\r\n"), GCMIVLength: nonceSize, MaxSessions: places + 1,
	})
	if err != nil {
		return nil, fmt.Errorf("the token %q of %s: %w", p.token, p.library, err)
	}
	return &token{place: p, session: session, free: make(chan struct{}, places)}, nil
}

func openKey(p place) (*token, error) {
	t, err := open(p)
	if err != nil {
		return nil, err
	}
	keys, err := t.session.FindKeys(nil, []byte(p.label))
	switch {
	case err != nil:
		err = fmt.Errorf("look for the key %q: %w", p.label, err)
	case len(keys) == 0:
		err = fmt.Errorf("the token %q has no secret key with the label %q: make one with create-key, or correct --key", p.token, p.label)
	case len(keys) > 1:
		err = fmt.Errorf("the token %q has %d secret keys with the label %q: label them apart", p.token, len(keys), p.label)
	default:
		t.key = keys[0]
		t.keyID, err = idOf(t.session, t.key)
	}
	if err != nil {
		return nil, errors.Join(err, t.session.Close())
	}
	return t, nil
}

func idOf(session *crypto11.Context, key *crypto11.SecretKey) ([]byte, error) {
	attribute, err := session.GetAttribute(key, crypto11.CkaId)
	if err != nil {
		return nil, fmt.Errorf("read the id of the key: %w", err)
	}
	if attribute == nil || len(attribute.Value) == 0 {
		return nil, errors.New("the key has no id (CKA_ID), by which it would be found again: give it one")
	}
	return attribute.Value, nil
}

// createKey creates a key that never leaves the token, and returns its id.
func createKey(p place) (string, error) {
	t, err := open(p)
	if err != nil {
		return "", err
	}
	defer func() { _ = t.session.Close() }() // the new key stays in the token
	there, err := t.session.FindKeys(nil, []byte(p.label))
	if err != nil {
		return "", fmt.Errorf("look for the key %q: %w", p.label, err)
	}
	if len(there) > 0 {
		return "", fmt.Errorf("the token %q has a key with the label %q already: choose another --key", p.token, p.label)
	}
	id := make([]byte, idSize)
	_, _ = rand.Read(id) // never fails
	if _, err := t.session.GenerateSecretKeyWithLabel(id, []byte(p.label), keyBits, crypto11.CipherAES); err != nil {
		return "", fmt.Errorf("make the key: %w", err)
	}
	return hex.EncodeToString(id), nil
}

func (t *token) wrap(ctx context.Context, plain []byte) (wrapped []byte, err error) {
	err = t.do(ctx, func() error {
		aead, err := t.key.NewGCM()
		if err != nil {
			return err
		}
		nonce := make([]byte, nonceSize)
		_, _ = rand.Read(nonce) // never fails
		wrapped = aead.Seal(nonce, nonce, plain, bound(t.keyID))
		return nil
	})
	return wrapped, err
}

// unwrap decrypts with the key that has wrapped the ciphertext. This can be an older key.
func (t *token) unwrap(ctx context.Context, keyID, wrapped []byte) (plain []byte, err error) {
	if len(keyID) == 0 || len(wrapped) < nonceSize {
		return nil, errNotIts
	}
	err = t.do(ctx, func() error {
		keys, err := t.session.FindKeys(keyID, nil)
		if err != nil {
			return err
		}
		if len(keys) != 1 {
			return errNotIts
		}
		aead, err := keys[0].NewGCM()
		if err != nil {
			return errNotIts
		}
		if plain, err = aead.Open(nil, wrapped[:nonceSize], wrapped[nonceSize:], bound(keyID)); err != nil {
			return fmt.Errorf("%w: %w", errNotIts, err)
		}
		return nil
	})
	return plain, err
}

// bound returns the associated data of a key, so that ciphertext of one key is not accepted as ciphertext of another.
func bound(keyID []byte) []byte { return append([]byte("kms-pkcs11 "), keyID...) }

// do calls the library and returns after callTimeout at the latest. A call that hangs keeps its place until it returns.
func (t *token) do(ctx context.Context, call func() error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	select {
	case t.free <- struct{}{}:
	case <-ctx.Done():
		return errHangs
	}
	done := make(chan error, 1)
	go func() {
		defer func() {
			<-t.free
			if r := recover(); r != nil { // crypto11 panics if sealing fails
				done <- fmt.Errorf("the PKCS#11 library: %v", r)
			}
		}()
		done <- call()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errHangs
	}
}
