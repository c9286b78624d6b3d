package audit_test

import (
	"context"
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
	work   time.Duration // of a commit
	last   int64
	begun  []string // "OPERATION... at TIME" of each commit
	start  time.Time
}

func (s *sharedStore) ClaimChain(context.Context) (audit.Chain, error) { return s, nil }

func (s *sharedStore) Append(_ context.Context, _ audit.Head, rows []keyserver.AuditEntry, seal func(int64) audit.Head) error {
	s.head = seal(s.last + s.others + 1)
	var operations []string
	for _, row := range rows {
		operations = append(operations, row.Operation)
	}
	s.begun = append(s.begun, strings.Join(slices.Compact(operations), ", ")+" at "+time.Since(s.start).String())
	s.last += s.others + int64(len(rows))
	time.Sleep(s.work)
	return nil
}

// sharedWriter returns a writer that has written one row.
func sharedWriter(t *testing.T, s *sharedStore, options audit.Options) *audit.Writer {
	t.Helper()
	w := newWriter(t, s, options)
	writes(t, w, "first", keyserver.PrincipalRef{}, 1)
	s.start, s.begun = time.Now(), nil
	return w
}

func writes(t *testing.T, w *audit.Writer, operation string, by keyserver.PrincipalRef, rows int) {
	t.Helper()
	if err := w.WriteAll(t.Context(), slices.Repeat([]keyserver.AuditEntry{{Operation: operation, Principal: by}}, rows)); err != nil {
		t.Errorf("%s: %v", operation, err)
	}
}

// TestListsLeaveTime checks when lists are committed while another process writes, and that single rows do not wait for
// the rest.
func TestListsLeaveTime(t *testing.T) {
	for name, c := range map[string]struct {
		others int64
		work   time.Duration
		want   []string
	}{
		"no other process": {0, time.Second, []string{"list at 0s", "list at 1s", "list, row at 2s"}},
		"another process":  {1, time.Second / 2, []string{"list at 0s", "row at 750ms", "list at 1.25s", "list at 2.25s"}},
		"slow commits":     {1, 3 * time.Second, []string{"list at 0s", "row at 3.5s", "list at 6.5s", "list at 10.5s"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &sharedStore{others: c.others, work: c.work}
				w := sharedWriter(t, s, audit.Options{Batch: 2})
				var all sync.WaitGroup
				for range 3 {
					all.Go(func() { writes(t, w, "list", keyserver.PrincipalRef{}, 2) })
				}
				time.Sleep(c.work + min(c.work, time.Second)/2)
				writes(t, w, "row", keyserver.PrincipalRef{}, 1)
				all.Wait()
				if !slices.Equal(s.begun, c.want) {
					t.Errorf("commits: %q, want %q", s.begun, c.want)
				}
				time.Sleep(time.Second) // the last rest
			})
		})
	}
}

// TestRestEnds checks that lists do not rest if the other process stopped, and that Close does not wait.
func TestRestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sharedStore{others: 1, work: time.Second / 4}
		w := sharedWriter(t, s, audit.Options{Batch: 2})
		writes(t, w, "list", keyserver.PrincipalRef{}, 2)
		s.others = 0
		for range 4 {
			writes(t, w, "list", keyserver.PrincipalRef{}, 2)
		}
		want := []string{"list at 0s", "list at 500ms", "list at 1s", "list at 1.5s", "list at 1.75s"}
		if !slices.Equal(s.begun, want) {
			t.Errorf("commits: %q, want %q", s.begun, want)
		}
		s.others = 1
		writes(t, w, "list", keyserver.PrincipalRef{}, 2)
		s.start, s.begun = time.Now(), nil
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { writes(t, w, "list", keyserver.PrincipalRef{}, 2) })
		}
		synctest.Wait()
		closeOf(t, w)
		all.Wait()
		if want := []string{"list at 0s", "list at 250ms"}; !slices.Equal(s.begun, want) {
			t.Errorf("commits of Close: %q, want %q", s.begun, want)
		}
	})
}

// TestListsAlternate checks that the list of a principal does not wait for all lists of another one, that neither lists
// nor single rows wait for all of the other kind, and that the number of lists is limited.
func TestListsAlternate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sharedStore{work: time.Second}
		w := sharedWriter(t, s, audit.Options{Batch: 2, Queue: 5})
		greedy, honest := keyserver.PrincipalRef{ID: keyserver.ID{1}}, keyserver.PrincipalRef{ID: keyserver.ID{2}}
		var all sync.WaitGroup
		begin := func(operation string, by keyserver.PrincipalRef, rows int) {
			all.Go(func() { writes(t, w, operation, by, rows) })
			synctest.Wait()
		}
		begin("now", greedy, 1)
		for range 4 {
			begin("greedy", greedy, 2)
		}
		begin("honest", honest, 2)
		if err := w.WriteAll(t.Context(), make([]keyserver.AuditEntry, 2)); fault.CodeOf(err) != fault.Overloaded {
			t.Errorf("a sixth list: %v", err)
		}
		for range 4 {
			begin("row", greedy, 1)
		}
		all.Wait()
		want := []string{"now at 0s", "greedy, row at 1s", "honest, row at 2s", "greedy at 3s", "greedy at 4s", "greedy at 5s"}
		if !slices.Equal(s.begun, want) {
			t.Errorf("commits: %q, want %q", s.begun, want)
		}
	})
}
