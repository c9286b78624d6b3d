package unixsocket_test

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/unixsocket"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

func TestPath(t *testing.T) {
	for _, url := range []string{
		"", "/run/kms.sock", "unix://run/kms.sock", "unix:///run/../kms.sock", "unix:///@kms", "unix:///run/kms.sock?x",
		"tcp://127.0.0.1:1", "unix:///", "unix:///run/", "unix:///a\x00", "unix:///" + strings.Repeat("a", 100),
	} {
		if place, err := unixsocket.Path(url); err == nil {
			t.Errorf("%s is taken for %s", url, place)
		}
	}
	if place, err := unixsocket.Path("unix:///run/keyserver/agent.sock"); err != nil || place != "/run/keyserver/agent.sock" {
		t.Errorf("got %q, %v", place, err)
	}
}

// TestListen checks that Listen succeeds only if no process serves the socket and no other kind of file exists there.
func TestListen(t *testing.T) {
	dir := t.TempDir()
	file, place := filepath.Join(dir, "file"), filepath.Join(dir, "socket")
	rig.Must(t, os.WriteFile(file, []byte("x"), 0o600))
	refused := func(place, because string) {
		t.Helper()
		if l, err := unixsocket.Listen(t.Context(), place, 0o600); err == nil || !strings.Contains(err.Error(), because) {
			t.Errorf("got %v, %v, want that it %s", l, err, because)
		}
	}
	refused(file, "is not a socket")
	refused(filepath.Join(dir, "none", "socket"), "create the directory")

	first, err := unixsocket.Listen(t.Context(), place, 0o640)
	rig.Must(t, err)
	info, err := os.Lstat(place)
	rig.Must(t, err)
	if info.Mode() != fs.ModeSocket|0o640 || first.Addr().String() != place {
		t.Errorf("%v at %v", info.Mode(), first.Addr())
	}
	refused(place, "another process responds")
	conn, err := net.Dial("unix", place)
	rig.Must(t, err)
	rig.Must(t, conn.Close())
	rig.Must(t, first.Close())
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left is %v, %v", left, err)
	}

	// The remaining socket of a killed process.
	gone, err := net.ListenUnix("unix", &net.UnixAddr{Name: place})
	rig.Must(t, err)
	gone.SetUnlinkOnClose(false)
	rig.Must(t, gone.Close())
	rig.Must(t, os.WriteFile(place+".new", nil, 0o600))
	again, err := unixsocket.Listen(t.Context(), place, 0o600)
	rig.Must(t, err)
	rig.Must(t, again.Close())
}

// TestOneOfMany checks that exactly one of several processes succeeds if all start at once over a stale socket.
func TestOneOfMany(t *testing.T) {
	place := filepath.Join(t.TempDir(), "socket")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: place})
	rig.Must(t, err)
	left.SetUnlinkOnClose(false)
	rig.Must(t, left.Close())
	var got atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if l, err := unixsocket.Listen(t.Context(), place, 0o600); err == nil {
				got.Add(1)
				t.Cleanup(func() { _ = l.Close() })
			}
		})
	}
	all.Wait()
	if got.Load() != 1 {
		t.Errorf("%d have the place", got.Load())
	}
}
