package ciphertext

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.TrimPrefix(text, "-"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var (
	someKey = []byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f")
	someID  = keyserver.ID{1, 2, 3, 4, 5, 6, 7, 8}
)

func newAEAD(t testing.TB, key []byte) *AEAD {
	t.Helper()
	a, err := New(key)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestKnownAnswers checks the layout of ciphertexts, which must never change. Another implementation of AES-GCM
// (pyca/cryptography) made these ciphertexts according to the package comment.
func TestKnownAnswers(t *testing.T) {
	for _, tc := range []struct{ sealed, plain, associated string }{
		{"010102030405060708a0a1a2a3a4a5a6a7a8a9aaab" + "a478f50334175d5ae6c33f6b0bc411e7", "", ""},
		{"010102030405060708a0a1a2a3a4a5a6a7a8a9aaab" + "873808483dbf3bbf8c7d9b5cab530172b55d3ea293c5", "a text", "of somebody"},
	} {
		sealed := unhex(t, tc.sealed)
		if id, err := KeyOf(sealed); err != nil || id != someID {
			t.Errorf("made with the key %s, %v", id, err)
		}
		plain, err := newAEAD(t, someKey).Open(sealed, []byte(tc.associated))
		if err != nil || string(plain) != tc.plain {
			t.Errorf("opened %q, %v; want %q", plain, err, tc.plain)
		}
	}
}

// TestWycheproof checks that the encryption without the header is standard AES-256-GCM.
func TestWycheproof(t *testing.T) {
	text, err := os.ReadFile("testdata/wycheproof_aes_gcm.txt")
	if err != nil {
		t.Fatal(err)
	}
	tried := map[string]int{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if strings.HasPrefix(line, "#") {
			continue
		}
		key, nonce, associated, plain, sealed, tag := unhex(t, f[1]), unhex(t, f[2]), unhex(t, f[3]), unhex(t, f[4]), unhex(t, f[5]), unhex(t, f[6])
		got, err := newAEAD(t, key).gcm.Open(nil, nil, bytes.Join([][]byte{nonce, sealed, tag}, nil), associated)
		if valid := err == nil && bytes.Equal(got, plain); valid != (f[7] == "valid") {
			t.Errorf("%s: opened %x, %v; it is %s", f[0], got, err, f[7])
		}
		tried[f[7]]++
	}
	if tried["valid"] < 30 || tried["invalid"] < 20 {
		t.Errorf("tried %v", tried)
	}
}

// TestNothingCanBeChanged checks that a changed ciphertext, another key or other associated data cannot be decrypted.
// Input that is too short is not a ciphertext.
func TestNothingCanBeChanged(t *testing.T) {
	a, plain, associated := newAEAD(t, someKey), []byte("a text"), []byte("of somebody")
	sealed := a.Seal(someID, plain, associated)
	if got, err := a.Open(sealed, associated); err != nil || !bytes.Equal(got, plain) {
		t.Fatalf("opened %q, %v", got, err)
	}
	if len(sealed) != len(plain)+keyserver.CipherOverhead || bytes.Equal(sealed, a.Seal(someID, plain, associated)) {
		t.Errorf("%d bytes, or twice the same", len(sealed))
	}
	for i := range sealed {
		for bit := range 8 {
			changed := bytes.Clone(sealed)
			changed[i] ^= 1 << bit
			if _, err := a.Open(changed, associated); err == nil {
				t.Errorf("bit %d of byte %d may be changed", bit, i)
			}
		}
		if _, err := a.Open(sealed[:i], associated); !errors.Is(err, ErrSealed) && !errors.Is(err, ErrForm) {
			t.Errorf("cut to %d bytes: %v", i, err)
		}
	}
	if _, err := KeyOf(sealed[:keyserver.CipherOverhead-1]); !errors.Is(err, ErrForm) {
		t.Errorf("cut: %v", err)
	}
	// Header and associated data cannot be confused.
	if _, err := a.Open(sealed, append([]byte{associated[0]}, associated...)); !errors.Is(err, ErrSealed) {
		t.Errorf("other associated data: %v", err)
	}
	if _, err := newAEAD(t, make([]byte, 32)).Open(sealed, associated); !errors.Is(err, ErrSealed) {
		t.Errorf("another key: %v", err)
	}
}

func TestNoKeyIsPrinted(t *testing.T) {
	a := newAEAD(t, someKey)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if shown := fmt.Sprintf(verb, a); shown != "AES-256-GCM" {
			t.Errorf("%s shows %s", verb, shown)
		}
	}
	if _, err := New(make([]byte, 31)); err == nil {
		t.Error("31 bytes are a key")
	}
}
