package keyring_test

import (
	"bytes"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
)

// TestRecovery checks that only the content of a recovery file opens the database with another key-encryption key.
func TestRecovery(t *testing.T) {
	store := openStore(t)
	c := start(t, store, kekURL(secret))
	identity, err := age.GenerateX25519Identity()
	must(t, err)
	stranger, err := age.GenerateX25519Identity()
	must(t, err)
	write := func() []byte {
		var out bytes.Buffer
		_, err := keyring.WriteRecovery(t.Context(), open(t, kekURL(secret)), store.Setting, identity.Recipient().String(), &out)
		must(t, err)
		return out.Bytes()
	}
	before := wrap(t, c)
	early := write()
	_, err = c.Rotate(t.Context())
	must(t, err)
	file, after := write(), wrap(t, c)
	if bytes.Contains(file, []byte("keys")) {
		t.Error("the file is not encrypted")
	}
	stored, other := setting(t, store), bytes.Repeat([]byte{7}, 32)
	recover := func(file []byte, identity string) error {
		return keyring.Recover(t.Context(), bytes.NewReader(file), strings.NewReader(identity), open(t, kekURL(other)), store)
	}
	cut := file[:len(file)-1]
	for reason, tc := range map[string]struct {
		file           []byte
		identity, want string
	}{
		"another identity":         {file, stranger.String(), "another recipient"},
		"no identity":              {file, "hunter2", "--identity"},
		"before the last rotation": {early, identity.String(), "does not contain the data key"},
		"cut":                      {cut, identity.String(), "--recovery"},
		"nothing":                  {nil, identity.String(), "--recovery"},
	} {
		if err := recover(tc.file, tc.identity); err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", reason, err)
		}
		if !bytes.Equal(stored, setting(t, store)) {
			t.Fatalf("%s: something was changed", reason)
		}
	}
	if _, err := keyring.WriteRecovery(t.Context(), open(t, kekURL(secret)), store.Setting, "ssh-rsa", &bytes.Buffer{}); err == nil {
		t.Error("a recipient that is none")
	}
	foreign := openStore(t)
	start(t, foreign, kekURL(secret))
	if err := keyring.Recover(t.Context(), bytes.NewReader(file), strings.NewReader(identity.String()), open(t, kekURL(other)), foreign); err == nil {
		t.Error("another database")
	}
	must(t, recover(file, identity.String()))
	again := start(t, store, kekURL(other))
	opens(t, "before", again, before)
	opens(t, "after", again, after)
}
