package usagequota

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// shared is the quota in the database.
type shared struct {
	mu     sync.Mutex
	left   int64
	asked  []int64
	failed error
}

func (s *shared) reserve(_ context.Context, _ keyserver.ID, n int64) (int64, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return 0, 0, s.failed
	}
	s.asked = append(s.asked, n)
	got := min(n, s.left)
	s.left -= got
	return got, s.left, nil
}

// TestTimesAreSharedOut checks that several processes together take each use exactly once.
func TestTimesAreSharedOut(t *testing.T) {
	const all = 20_000
	s, key := &shared{left: all}, values.IDFromUint64(1)
	var used atomic.Int64
	var processes sync.WaitGroup
	for range 3 {
		process := New(10, s.reserve)
		for range 4 {
			processes.Go(func() {
				for {
					if _, err := process.Take(t.Context(), key); err != nil {
						if !errors.Is(err, ErrNone) {
							t.Error(err)
						}
						return
					}
					used.Add(1)
				}
			})
		}
	}
	processes.Wait()
	if used.Load() != all {
		t.Errorf("used %d of %d", used.Load(), all)
	}
	if len(s.asked) > 60 {
		t.Errorf("asked %d times", len(s.asked))
	}
}

// TestBlocksGrow checks that blocks grow up to a limit, and that Fresh reports the first use of each block.
func TestBlocksGrow(t *testing.T) {
	s, key := &shared{left: 1 << 40}, values.IDFromUint64(1)
	a := New(10, s.reserve)
	fresh := 0
	for range 3 * maxBlock {
		taken, err := a.Take(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if taken.Fresh {
			fresh++
		}
		if taken.Left != s.left {
			t.Fatalf("%d are left, not %d", s.left, taken.Left)
		}
	}
	if fresh != len(s.asked) || s.asked[0] != firstBlock || s.asked[1] != 2*firstBlock || s.asked[len(s.asked)-1] != maxBlock {
		t.Errorf("%d blocks: %v", fresh, s.asked)
	}
}

// TestFailuresAndForgetting checks that a failed reservation takes no use. A key that was removed from memory starts
// with a small block again.
func TestFailuresAndForgetting(t *testing.T) {
	s, one, two := &shared{left: 1000, failed: errors.New("away")}, values.IDFromUint64(1), values.IDFromUint64(2)
	a := New(1, s.reserve)
	if _, err := a.Take(t.Context(), one); !errors.Is(err, s.failed) {
		t.Errorf("got %v", err)
	}
	s.failed = nil
	for _, key := range []keyserver.ID{one, one, two, one} {
		if _, err := a.Take(t.Context(), key); err != nil {
			t.Error(err)
		}
	}
	if len(s.asked) != 3 || len(a.keys) != 1 {
		t.Errorf("asked for %v, remembers %d keys", s.asked, len(a.keys))
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	a.block(one).turn <- struct{}{}
	if _, err := a.Take(gone, one); !errors.Is(err, context.Canceled) {
		t.Errorf("while another waits: %v", err)
	}
}

// TestPeek checks that Peek takes no use, from this process or from the database.
func TestPeek(t *testing.T) {
	s, key := &shared{left: firstBlock}, values.IDFromUint64(1)
	a := New(1, s.reserve)
	for range 3 {
		if _, err := a.Peek(t.Context(), key); err != nil || s.left != firstBlock {
			t.Fatalf("%v, %d left", err, s.left)
		}
	}
	for n := range firstBlock {
		if _, err := a.Peek(t.Context(), key); err != nil {
			t.Fatalf("after %d: %v", n, err)
		}
		if _, err := a.Take(t.Context(), key); err != nil {
			t.Fatalf("after %d: %v", n, err)
		}
	}
	if _, err := a.Peek(t.Context(), key); !errors.Is(err, ErrNone) {
		t.Errorf("none is left: %v", err)
	}
	s.failed = errors.New("no")
	if _, err := a.Peek(t.Context(), key); !errors.Is(err, s.failed) {
		t.Errorf("the database fails: %v", err)
	}
}
