package keyring_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

var (
	keyID  = values.IDFromUint64(7)
	secret = bytes.Repeat([]byte{0xfb, 0xef, 0xbe}, 11)[:32] // its base64 contains "-" and "_"
)

func kekURL(key []byte) string { return "base64key://" + base64.URLEncoding.EncodeToString(key) }

func open(t *testing.T, url string) *keyring.Provider {
	t.Helper()
	keeper, err := keyring.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return keeper
}

func openStore(t *testing.T) *sqlstore.Store {
	t.Helper()
	store, err := sqlstore.Open(t.Context(), sqlstore.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

func TestURLRefused(t *testing.T) {
	text := base64.URLEncoding.EncodeToString(secret)
	for name, url := range map[string]string{
		"Empty":       "",
		"NoScheme":    text,
		"Unknown":     "nokms://" + text,
		"NoKey":       "base64key://",
		"Short":       "base64key://" + text[:40],
		"Unpadded":    "base64key://" + strings.TrimRight(text, "="),
		"Long":        "base64key://" + text[:43] + "AAAA=",
		"StrayBits":   "base64key://" + text[:42] + "_=",
		"LineBreak":   "base64key://" + text[:20] + "\n" + text[20:],
		"Parameter":   "base64key://" + text + "?x=1",
		"ControlByte": "base64key://\x7f" + text,
	} {
		_, err := keyring.Open(t.Context(), url)
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if shows := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(shows, text[:20]) {
			t.Errorf("%s: the error shows the key: %s", name, shows)
		}
	}
}

func TestEitherAlphabet(t *testing.T) {
	store := openStore(t)
	for _, encoding := range []*base64.Encoding{base64.URLEncoding, base64.StdEncoding} {
		if _, err := keyring.New(t.Context(), open(t, "base64key://"+encoding.EncodeToString(secret)), store); err != nil {
			t.Error(err)
		}
	}
}

func TestWrongKeyEncryptionKey(t *testing.T) {
	store := openStore(t)
	if _, err := keyring.New(t.Context(), open(t, kekURL(secret)), store); err != nil {
		t.Fatal(err)
	}
	before, err := store.Setting(t.Context(), "dataKey")
	if err != nil {
		t.Fatal(err)
	}
	other := bytes.Clone(secret)
	other[31] ^= 1
	if _, err := keyring.New(t.Context(), open(t, kekURL(other)), store); !errors.Is(err, keyring.ErrWrongKey) {
		t.Errorf("got %v", err)
	}
	after, err := store.Setting(t.Context(), "dataKey")
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the data key must stay as it is: %v", err)
	}
}

// TestOneDataKey checks that processes which start at the same time create only one data key.
func TestOneDataKey(t *testing.T) {
	store := openStore(t)
	var keyrings [4]*keyring.Keyring
	var wg sync.WaitGroup
	for i := range keyrings {
		wg.Go(func() {
			var err error
			if keyrings[i], err = keyring.New(t.Context(), open(t, kekURL(secret)), store); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	wrapped, err := keyrings[0].Wrap(keyID, 1, secret)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range keyrings {
		if plain, err := c.Unwrap(keyID, 1, wrapped); err != nil || !bytes.Equal(plain, secret) {
			t.Errorf("keyring %d does not open what another wrapped: %v", i, err)
		}
	}
}

func TestUnwrapRefuses(t *testing.T) {
	c := newKeyring(t)
	wrapped, err := c.Wrap(keyID, 1, secret)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(reason string, id keyserver.ID, system keyserver.SystemID, wrapped []byte) {
		t.Helper()
		plain, err := c.Unwrap(id, system, wrapped)
		if !errors.Is(err, keyring.ErrDamaged) || plain != nil {
			t.Errorf("%s: got %x, %v", reason, plain, err)
		}
	}
	for i := range wrapped {
		flipped := bytes.Clone(wrapped)
		flipped[i] ^= 1
		refused(fmt.Sprintf("byte %d flipped", i), keyID, 1, flipped)
	}
	for n := range wrapped {
		refused(fmt.Sprintf("cut at %d", n), keyID, 1, wrapped[:n])
	}
	refused("longer", keyID, 1, append(bytes.Clone(wrapped), 0))
	refused("under another key's id", values.IDFromUint64(8), 1, wrapped)
	refused("under another system's id", keyID, 2, wrapped)
}

func TestWrap(t *testing.T) {
	c := newKeyring(t)
	for _, plain := range [][]byte{{}, {1}, secret, bytes.Repeat([]byte{2}, 1024)} {
		one, err := c.Wrap(keyID, 1, plain)
		if err != nil {
			t.Fatal(err)
		}
		two, err := c.Wrap(keyID, 1, plain)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(one, two) {
			t.Error("a nonce was used twice")
		}
		if len(plain) > 8 && bytes.Contains(one, plain[:8]) {
			t.Error("the plain bytes are in it")
		}
		got, err := c.Unwrap(keyID, 1, one)
		if err != nil || !bytes.Equal(plain, got) {
			t.Errorf("got %x, %v", got, err)
		}
	}
}

func newKeyring(t *testing.T) *keyring.Keyring {
	t.Helper()
	c, err := keyring.New(t.Context(), open(t, kekURL(secret)), openStore(t))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNothingShows(t *testing.T) {
	keeper, c := open(t, kekURL(secret)), newKeyring(t)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		want := [2]string{"key-encryption key", "keyring"}
		got := [2]string{strings.Trim(fmt.Sprintf(verb, keeper), `"`), strings.Trim(fmt.Sprintf(verb, c), `"`)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", verb, diff)
		}
	}
}

func TestFileKey(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	var urls [8]string
	var wg sync.WaitGroup
	for i := range urls {
		wg.Go(func() {
			var err error
			if urls[i], err = keyring.EnsureFileKey(dir); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, url := range urls {
		if url != urls[0] {
			t.Error("all must get the key that one of them made")
		}
	}
	open(t, urls[0])
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("one file: %v, %v", entries, err)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "kek"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

func TestFileKeyRefused(t *testing.T) {
	text := base64.URLEncoding.EncodeToString(secret)
	cases := map[string]struct {
		reason string
		files  map[string]string
	}{
		"Lost":    {"a new key would open nothing in the database", map[string]string{"keyserver.db": ""}},
		"Empty":   {"an empty file is not replaced", map[string]string{"kek": ""}},
		"Damaged": {"nor is a damaged one", map[string]string{"kek": text[:30]}},
		"Long":    {"nor one with more in it", map[string]string{"kek": text + "\n" + text}},
	}
	for name, tc := range cases {
		dir := t.TempDir()
		for file, content := range tc.files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		url, err := keyring.EnsureFileKey(dir)
		if err == nil || url != "" {
			t.Errorf("%s: %s: accepted", name, tc.reason)
			continue
		}
		if strings.Contains(err.Error(), text[:20]) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: not one sentence without the key: %v", name, err)
		}
		for file, content := range tc.files {
			if now, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(now) != content {
				t.Errorf("%s: %s changed", name, file)
			}
		}
		if entries, _ := os.ReadDir(dir); len(entries) != len(tc.files) {
			t.Errorf("%s: something was left behind: %v", name, entries)
		}
	}
}

func BenchmarkUnwrap(b *testing.B) {
	store, err := sqlstore.Open(b.Context(), sqlstore.Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	keeper, err := keyring.Open(b.Context(), kekURL(secret))
	if err != nil {
		b.Fatal(err)
	}
	c, err := keyring.New(context.Background(), keeper, store)
	if err != nil {
		b.Fatal(err)
	}
	wrapped, err := c.Wrap(keyID, 1, secret)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Unwrap(keyID, 1, wrapped); err != nil {
			b.Fatal(err)
		}
	}
}
