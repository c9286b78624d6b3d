package datadir_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/datadir"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

func TestAwaitEndsWithTheCaller(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	held, err := datadir.Lock(dir, slog.New(slog.DiscardHandler))
	rig.Must(t, err)
	defer held.Close()
	ctx, stop := context.WithCancel(t.Context())
	says := &rig.Output{}
	ended := make(chan error, 1)
	go func() { ended <- datadir.Await(ctx, dir, rig.Patience, slog.New(slog.NewTextHandler(says, nil))) }()
	rig.Soon(t, "it says that it waits", func() bool { return strings.Contains(says.String(), "in use by another process") })
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller waits no longer: %v", err)
	}
}

// After Await has waited for its patience, Lock returns ErrInUse.
func TestAwaitEndsWithItsPatience(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	quiet := slog.New(slog.DiscardHandler)
	held, err := datadir.Lock(dir, quiet)
	rig.Must(t, err)
	defer held.Close()
	rig.Must(t, datadir.Await(t.Context(), dir, time.Millisecond, quiet))
	if _, err := datadir.Lock(dir, quiet); !errors.Is(err, datadir.ErrInUse) {
		t.Errorf("the directory is held, and another start gets %v", err)
	}
}

func TestAwaitEndsWithTheOther(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	says := &rig.Output{}
	log := slog.New(slog.NewTextHandler(says, nil))
	rig.Must(t, datadir.Await(t.Context(), dir, rig.Patience, log)) // the directory does not exist yet
	held, err := datadir.Lock(dir, log)
	rig.Must(t, err)
	ended := make(chan error, 1)
	go func() { ended <- datadir.Await(t.Context(), dir, rig.Patience, log) }()
	rig.Soon(t, "it says that it waits", func() bool { return strings.Contains(says.String(), "in use by another process") })
	select {
	case err := <-ended:
		t.Fatalf("the directory is held, and the wait has ended: %v", err)
	default:
	}
	rig.Must(t, held.Close())
	rig.Must(t, <-ended)
	again, err := datadir.Lock(dir, log)
	rig.Must(t, err)
	rig.Must(t, again.Close())
}
