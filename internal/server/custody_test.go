package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/custody"
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore"
)

func TestWarnsOfAKeyBesideTheDatabase(t *testing.T) {
	for reason, tc := range map[string]struct {
		cfg  Config
		want int
	}{
		"both in the directory": {Config{DataDir: "d"}, 1},
		"a key elsewhere":       {Config{DataDir: "d", KEK: "kmsv2:///run/s"}, 0},
		"a database elsewhere":  {Config{DataDir: "d", DatabaseURL: "postgres://db"}, 0},
	} {
		if got := tc.cfg.warnings(); len(got) != tc.want {
			t.Errorf("%s: %q", reason, got)
		}
	}
}

// TestAStartWaitsForItsKey: for a plugin that is not there yet, within bounds, and says so
// once.
func TestAStartWaitsForItsKey(t *testing.T) {
	store, err := sqlstore.Open(t.Context(), sqlstore.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	keeper, err := custody.Open(t.Context(), "kmsv2://"+filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Close()
	var log bytes.Buffer
	s := &Server{cfg: Config{Clock: time.Now, Logger: slog.New(slog.NewTextHandler(&log, nil))}}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := s.openCustodian(ctx, keeper, store); !errors.Is(err, custody.ErrAway) {
		t.Errorf("got %v", err)
	}
	if ctx.Err() == nil {
		t.Error("it did not wait")
	}
	if n := strings.Count(log.String(), "waiting for the key-encryption key"); n != 1 {
		t.Errorf("it is said %d times: %s", n, log.String())
	}
}
