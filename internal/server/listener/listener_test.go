package listener

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"
)

func limited(t *testing.T, files uint64) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	lower := before
	lower.Cur = files
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lower); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	})
}

func TestFit(t *testing.T) {
	limited(t, 300)
	for name, c := range map[string]struct {
		wanted, others, fits int
		warns                bool
	}{
		"enough files":               {100, 100, 100, false},
		"all files":                  {200, 100, 200, false},
		"one too many":               {201, 100, 200, true},
		"others need nearly all":     {201, 299, 75, true},
		"others need more than all":  {201, 400, 75, true},
		"few, while others need all": {70, 400, 70, false},
	} {
		var log bytes.Buffer
		got := Fit(slog.New(slog.NewTextHandler(&log, nil)), "--max-connections", c.wanted, c.others)
		if got != c.fits || c.warns != strings.Contains(log.String(), "--max-connections") || c.warns != strings.Contains(log.String(), "level=WARN") {
			t.Errorf("%s: %d, %s", name, got, &log)
		}
	}
}

// failing is a listener whose Accept returns the given errors in order.
type failing struct {
	net.Listener
	errs []error
}

func (f *failing) Accept() (net.Conn, error) {
	err := f.errs[0]
	f.errs = f.errs[1:]
	return nil, err
}

// TestFailedAccepts checks that each failure is counted, and that the first is logged as an error. Closing the listener
// is not a failure.
func TestFailedAccepts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var log bytes.Buffer
	a := NewAccepts("keyserver_accept_failures_total", slog.New(slog.NewTextHandler(&log, nil)))
	errs := []error{unix.EMFILE, unix.EMFILE, unix.ENFILE, net.ErrClosed}
	w := a.Probes(&failing{l, errs})
	for _, want := range errs {
		if _, err := w.Accept(); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	if n := testutil.ToFloat64(a); n != 3 {
		t.Errorf("%v failures are counted", n)
	}
	if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "too many open files") {
		t.Error(log.String())
	}
}
