package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

func TestWarnsOfAKeyBesideTheDatabase(t *testing.T) {
	private, open := t.TempDir(), t.TempDir()
	for dir, mode := range map[string]os.FileMode{private: 0o660, open: 0o604} {
		file := filepath.Join(dir, keyring.KeyFile)
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
	}
	for reason, tc := range map[string]struct {
		cfg  Config
		want int
	}{
		"both in the directory": {Config{DataDir: "d"}, 1},
		"the file, by its name": {Config{DataDir: "d", KEK: "file"}, 1},
		"a key elsewhere":       {Config{DataDir: "d", KEK: "kmsv2:///run/s"}, 0},
		"a database elsewhere":  {Config{DataDir: "d", DatabaseURL: "postgres://db"}, 0},
		"a key for its group":   {Config{DataDir: private, DatabaseURL: "postgres://db"}, 0},
		"a key for everybody":   {Config{DataDir: open, DatabaseURL: "postgres://db"}, 1},
	} {
		if got := tc.cfg.warnings(); len(got) != tc.want {
			t.Errorf("%s: %q", reason, got)
		}
	}
}

func TestPreviousKeyNeedsOneInItsPlace(t *testing.T) {
	other := "base64key://" + base64.StdEncoding.EncodeToString(make([]byte, 32))
	for reason, tc := range map[string]struct {
		kek, previous, want string
	}{
		"none":              {"", other, "--kek file"},
		"the file, twice":   {"", "file", "--kek-previous file"},
		"the file":          {"file", other, ""},
		"from the file":     {other, "file", ""},
		"the file, as ever": {"", "", ""},
		"no URL":            {"files", other, "--kek:"},
	} {
		c := Config{KEK: tc.kek, KEKPrevious: tc.previous}
		if err := c.validateKEK(); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", reason, err)
		}
	}
}

// TestAStartWaitsForItsKey checks that a start waits for a plugin that does not respond yet, for a limited time, and
// logs this once.
func TestAStartWaitsForItsKey(t *testing.T) {
	store, err := sqlstore.Open(t.Context(), sqlstore.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	keeper, err := keyring.Open(t.Context(), "kmsv2://"+filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Close()
	var log bytes.Buffer
	s := &Server{store: store, cfg: Config{Clock: time.Now, Logger: slog.New(slog.NewTextHandler(&log, nil))}}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := s.openKeyring(ctx, keeper); !errors.Is(err, keyring.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if ctx.Err() == nil {
		t.Error("it did not wait")
	}
	if n := strings.Count(log.String(), "waiting for the key-encryption key"); n != 1 {
		t.Errorf("it is said %d times: %s", n, log.String())
	}
}

// TestReadinessNamesTheKey checks that a replica with an old key-encryption key reports a warning, and is not ready if
// it cannot open a newer data key.
func TestReadinessNamesTheKey(t *testing.T) {
	store, err := sqlstore.Open(t.Context(), sqlstore.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	begin := func(kek byte, previous *keyring.Provider) (*keyring.Keyring, *keyring.Provider) {
		t.Helper()
		keeper, err := keyring.Open(t.Context(), "base64key://"+base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{kek}, 32)))
		if err != nil {
			t.Fatal(err)
		}
		c, err := keyring.Start(t.Context(), keeper, store, keyring.Options{Previous: previous})
		if err != nil {
			t.Fatal(err)
		}
		return c, keeper
	}
	behind, former := begin(1, nil)
	var log bytes.Buffer
	now := time.Now()
	cfg := Config{DatabaseURL: "postgres://db", Clock: func() time.Time { return now }, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	h := &health{
		cfg:   cfg,
		store: store, key: watchKey(behind, cfg), backups: func() string { return "" }, replica: func() string { return "" },
	}
	look := func(reason string, warnings int, want string) {
		t.Helper()
		now = now.Add(keyEvery)
		if _, err := behind.Reload(t.Context()); (err == nil) != (want == "") {
			t.Errorf("%s: %v", reason, err)
		}
		h.key.look(t.Context())
		err := h.key.trouble()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || len(h.warnings()) != warnings {
			t.Errorf("%s: %v, %q", reason, err, h.warnings())
		}
	}
	look("at the start", 0, "")
	newer, _ := begin(2, former)
	look("wrapped by another one", 1, "")
	look("a minute later", 1, "")
	if n := strings.Count(log.String(), "another replica"); n != 1 {
		t.Errorf("it is logged %d times", n)
	}
	if _, err := newer.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	look("a data key that does not open", 1, "newest data key")
}
