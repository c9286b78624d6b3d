package audit_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// sharedStore is a database to which another process writes others rows before each commit.
type sharedStore struct {
	liar
	others int64
	wait   time.Duration // for the lock
	work   time.Duration // of a commit, after the wait
	fails  error         // of each commit
	last   int64
	begun  []string // "OPERATION... at TIME" of each commit
	start  time.Time
}

func (s *sharedStore) ClaimChain(context.Context) (audit.Chain, error) { return s, nil }

func (s *sharedStore) Append(_ context.Context, _ audit.Head, rows []keyserver.AuditEntry, seal func(int64) audit.Head) error {
	time.Sleep(s.wait)
	s.head = seal(s.last + s.others + 1)
	var operations []string
	for _, row := range rows {
		operations = append(operations, row.Operation)
	}
	s.begun = append(s.begun, strings.Join(slices.Compact(operations), ", ")+" at "+time.Since(s.start).String())
	time.Sleep(s.work)
	if s.fails == nil {
		s.last += s.others + int64(len(rows))
	}
	return s.fails
}

// sharedWriter returns a writer that has written one row.
func sharedWriter(t *testing.T, s *sharedStore, options audit.Options) *audit.Writer {
	t.Helper()
	w := newWriter(t, s, options)
	writes(t, w, keyserver.AuditEntry{Operation: "first"}, 1)
	s.start, s.begun = time.Now(), nil
	return w
}

func writes(t *testing.T, w *audit.Writer, row keyserver.AuditEntry, rows int) {
	t.Helper()
	if err := w.WriteAll(t.Context(), slices.Repeat([]keyserver.AuditEntry{row}, rows)); err != nil {
		t.Errorf("%s: %v", row.Operation, err)
	}
}

func (s *sharedStore) expect(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(s.begun, want) {
		t.Errorf("commits: %q, want %q", s.begun, want)
	}
	s.start, s.begun = time.Now(), nil
}

// TestListsLeaveTime checks when lists of ten rows are committed while another process writes, and that single rows do
// not wait for the rest. Each commit begins to hold the lock after 100 ms.
func TestListsLeaveTime(t *testing.T) {
	const wait = 100 * time.Millisecond
	for name, c := range map[string]struct {
		others int64
		work   time.Duration
		want   []string
	}{
		"no other process":  {0, 100 * time.Millisecond, []string{"list at 100ms", "list at 300ms", "list, row at 500ms"}},
		"one row":           {1, 100 * time.Millisecond, []string{"list at 100ms", "row at 310ms", "list at 510ms", "list at 850ms"}},
		"as many rows":      {10, 100 * time.Millisecond, []string{"list at 100ms", "row at 310ms", "list at 600ms", "list at 1.3s"}},
		"many rows":         {1000, 100 * time.Millisecond, []string{"list at 100ms", "row at 310ms", "list at 800ms", "list at 1.5s"}},
		"commits that hang": {10, 3 * time.Second, []string{"list at 100ms", "row at 3.21s", "list at 6.31s", "list at 10.41s"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &sharedStore{others: c.others, wait: wait, work: c.work}
				w := sharedWriter(t, s, audit.Options{Batch: 2})
				var all sync.WaitGroup
				for range 3 {
					all.Go(func() { writes(t, w, keyserver.AuditEntry{Operation: "list"}, 10) })
				}
				time.Sleep(wait + c.work + 10*time.Millisecond)
				writes(t, w, keyserver.AuditEntry{Operation: "row"}, 1)
				all.Wait()
				s.expect(t, c.want...)
				time.Sleep(time.Second) // the last rest
			})
		})
	}
}

// TestRestEnds checks that lists do not rest if the other process stopped, after an error, or if the clock is set back,
// and that Close does not wait.
func TestRestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow time.Duration // of the clock
		s := &sharedStore{others: 2, work: 200 * time.Millisecond}
		w := sharedWriter(t, s, audit.Options{Batch: 2, Clock: func() time.Time { return time.Now().Add(-slow) }})
		list := func() { writes(t, w, keyserver.AuditEntry{Operation: "list"}, 2) }
		list()
		s.others = 0
		for range 4 {
			list()
		}
		s.expect(t, "list at 0s", "list at 800ms", "list at 1.2s", "list at 1.4s", "list at 1.6s")

		s.others = 2
		list()
		s.others, slow = 0, time.Hour
		time.Sleep(time.Second)
		list()
		list()
		s.expect(t, "list at 0s", "list at 1.2s", "list at 1.4s")

		slow, s.others, s.fails = 0, 2, errors.New("the disk is full")
		for range 2 {
			if err := w.WriteAll(t.Context(), make([]keyserver.AuditEntry, 2)); fault.CodeOf(err) != fault.AuditUnavailable {
				t.Errorf("got %v", err)
			}
		}
		s.last, s.fails, s.others = s.last+100, nil, 0 // numbers of failed commits are not those of another process
		list()
		list()
		s.expect(t, " at 0s", " at 200ms", "list at 400ms", "list at 600ms")

		s.others = 2
		list()
		s.expect(t, "list at 0s")
		var all sync.WaitGroup
		for range 2 {
			all.Go(list)
		}
		synctest.Wait()
		closeOf(t, w)
		all.Wait()
		s.expect(t, "list at 0s", "list at 200ms")
	})
}

// TestListsAlternate checks that the list of a principal does not wait for all lists of another one, and that neither
// lists nor single rows wait for all of the other kind. It also checks that the number of lists is limited.
func TestListsAlternate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sharedStore{work: time.Second}
		w := sharedWriter(t, s, audit.Options{Batch: 2, Queue: 5})
		greedy, honest := keyserver.PrincipalRef{ID: keyserver.ID{1}}, keyserver.PrincipalRef{ID: keyserver.ID{2}}
		var all sync.WaitGroup
		begin := func(row keyserver.AuditEntry, rows int) {
			all.Go(func() { writes(t, w, row, rows) })
			synctest.Wait()
		}
		begin(keyserver.AuditEntry{Operation: "now"}, 1)
		begin(keyserver.AuditEntry{Operation: "greedy", Principal: greedy}, 2)
		for n := range byte(3) { // the holder is the actor
			begin(keyserver.AuditEntry{Operation: "greedy", Principal: keyserver.PrincipalRef{ID: keyserver.ID{3, n}}, Actor: greedy}, 2)
		}
		begin(keyserver.AuditEntry{Operation: "honest", Principal: honest}, 2)
		if err := w.WriteAll(t.Context(), make([]keyserver.AuditEntry, 2)); fault.CodeOf(err) != fault.Overloaded {
			t.Errorf("a sixth list: %v", err)
		}
		for range 4 {
			begin(keyserver.AuditEntry{Operation: "row"}, 1)
		}
		all.Wait()
		s.expect(t, "now at 0s", "greedy, row at 1s", "honest, row at 2s", "greedy at 3s", "greedy at 4s", "greedy at 5s")
	})
}
