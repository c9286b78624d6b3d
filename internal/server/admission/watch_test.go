package admission

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

type watched struct {
	*Watch
	path string
	now  atomic.Int64 // nanoseconds after begin
	log  bytes.Buffer
}

func watching(t *testing.T, envelope []byte) *watched {
	t.Helper()
	w := &watched{path: filepath.Join(t.TempDir(), "release.json")}
	if envelope != nil {
		w.put(t, envelope)
	}
	w.Watch = NewWatch(WatchConfig{
		Key: public(releaseKey), Manifest: w.path, Digest: thisBuild, Retry: 30 * time.Second,
		Clock:  func() time.Time { return begin.Add(time.Duration(w.now.Load())) },
		Logger: slog.New(slog.NewTextHandler(&w.log, nil)),
	})
	return w
}

func (w *watched) put(t *testing.T, envelope []byte) {
	t.Helper()
	if err := os.WriteFile(w.path, envelope, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestAWatchRefusesAndRecovers checks that an invalid file causes a temporary refusal, which names the cause but not
// the path. A valid file ends the refusal.
func TestAWatchRefusesAndRecovers(t *testing.T) {
	good := sign(t, releaseKey, manifest())
	for name, c := range map[string]struct {
		make func(t *testing.T, path string)
		want string
	}{
		"NoFile":    {func(*testing.T, string) {}, "cannot be read"},
		"Directory": {func(t *testing.T, path string) { check(t, os.Mkdir(path, 0o700)) }, "not a file"},
		"Pipe":      {func(t *testing.T, path string) { check(t, syscall.Mkfifo(path, 0o600)) }, "not a file"},
		"Empty":     {func(t *testing.T, path string) { check(t, os.WriteFile(path, nil, 0o600)) }, "not a DSSE envelope"},
		"Long":      {func(t *testing.T, path string) { check(t, os.WriteFile(path, make([]byte, 1<<20), 0o600)) }, "at most"},
		"OtherKey": {func(t *testing.T, path string) {
			check(t, os.WriteFile(path, sign(t, otherKey, manifest()), 0o600))
		}, "no valid signature"},
	} {
		t.Run(name, func(t *testing.T) {
			w := watching(t, nil)
			c.make(t, w.path)
			w.look()
			f := fault.As(w.Refusal())
			if f == nil || f.Code != fault.BuildNotAdmitted || f.Scope != fault.ScopeProcess || !f.Retryable || f.RetryAfter != 30*time.Second {
				t.Fatalf("got %+v", f)
			}
			if !strings.Contains(f.Detail, c.want) || strings.Contains(f.Detail, w.path) {
				t.Errorf("detail is %q, wanted %q and no path", f.Detail, c.want)
			}
			check(t, os.RemoveAll(w.path))
			w.put(t, good)
			w.look()
			if err := w.Refusal(); err != nil {
				t.Errorf("after a good file: %v", err)
			}
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestARefusalCountsDown checks that RetryAfter is the time until the next check, and at least one second.
func TestARefusalCountsDown(t *testing.T) {
	w := watching(t, nil)
	for after, want := range map[time.Duration]time.Duration{0: 30 * time.Second, 20 * time.Second: 10 * time.Second, 29900 * time.Millisecond: time.Second, time.Hour: time.Second} {
		w.now.Store(int64(after))
		if got := fault.As(w.Refusal()).RetryAfter; got != want {
			t.Errorf("%s after the look: retry after %s, want %s", after, got, want)
		}
	}
}

// TestWhenAWatchLooksAgain checks that the next check is after the interval, or earlier if the manifest begins or ends
// before that.
func TestWhenAWatchLooksAgain(t *testing.T) {
	for name, c := range map[string]struct {
		at   time.Duration // time after the manifest begins
		want time.Duration
	}{
		"LongBefore": {-time.Hour, 30 * time.Second},
		"JustBefore": {-7 * time.Second, 7 * time.Second},
		"AtTheVerge": {-1, soonest},
		"Within":     {time.Hour, 30 * time.Second},
		"NearTheEnd": {end.Sub(begin) - 5*time.Second, 5*time.Second + 1},
		"After":      {end.Sub(begin) + time.Hour, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := watching(t, sign(t, releaseKey, manifest()))
			w.now.Store(int64(c.at))
			w.look()
			if got := w.verdict.Load().wait; got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestAWatchRuns checks that Run detects changes of the file and the clock, and ends with its context.
func TestAWatchRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "release.json")
		start := time.Now()
		w := NewWatch(WatchConfig{
			Key: public(releaseKey), Manifest: path, Digest: thisBuild, Retry: 30 * time.Second,
			Clock: time.Now, Logger: slog.New(slog.DiscardHandler),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.Run(ctx) }()
		admitted := func(at time.Duration, want bool) {
			t.Helper()
			time.Sleep(at - time.Since(start))
			synctest.Wait()
			if err := w.Refusal(); (err == nil) != want {
				t.Errorf("after %s: %v", at, err)
			}
		}
		admitted(0, false)
		m := Manifest{Digests: []string{thisBuild}, NotBefore: start.Add(40 * time.Second), NotAfter: start.Add(95 * time.Second)}
		check(t, os.WriteFile(path, sign(t, releaseKey, m), 0o600))
		admitted(39*time.Second, false)
		admitted(40*time.Second, true)
		admitted(95*time.Second, true)
		admitted(95*time.Second+soonest, false)
		m.NotAfter = start.Add(time.Hour)
		check(t, os.WriteFile(path, sign(t, releaseKey, m), 0o600))
		admitted(126*time.Second, true)
		check(t, os.WriteFile(path, sign(t, otherKey, m), 0o600))
		admitted(160*time.Second, false)
		cancel()
		<-done
	})
}

// TestAWatchLogsChanges checks that a refusal is logged once while it does not change.
func TestAWatchLogsChanges(t *testing.T) {
	w := watching(t, nil)
	w.look()
	w.put(t, sign(t, otherKey, manifest()))
	w.look()
	w.look()
	w.put(t, sign(t, releaseKey, manifest()))
	w.look()
	w.look()
	text := w.log.String()
	if refused, admitted := strings.Count(text, "build not admitted"), strings.Count(text, "build admitted"); refused != 2 || admitted != 1 {
		t.Errorf("%d refusals and %d admissions in\n%s", refused, admitted, text)
	}
}
