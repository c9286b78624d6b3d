package session

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
)

// FuzzHashToken: only one text is valid for a session id, which is the issued text.
func FuzzHashToken(f *testing.F) {
	good := base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("x", tokenBytes)))
	for _, seed := range []string{good, good + "=", good + "\n", good[:len(good)-1], strings.ToLower(good), " " + good, ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		hash, ok := hashToken(token)
		if !ok {
			return
		}
		raw, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil || base64.RawURLEncoding.EncodeToString(raw) != token || sha256.Sum256(raw) != hash {
			t.Errorf("%q passes for a session id", token)
		}
	})
}
