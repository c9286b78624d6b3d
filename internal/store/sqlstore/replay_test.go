package sqlstore_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// TestReplayConformance checks that SQLite and PostgreSQL behave the same.
func TestReplayConformance(t *testing.T) {
	for name, make := range migratedKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for name, test := range map[string]func(*testing.T, *sqlstore.Store){
				"OnlyOneIsFirst": testOnlyOneIsFirst, "Expiry": testProofExpiry, "Resume": testResumeProofs,
			} {
				t.Run(name, func(t *testing.T) { test(t, openStore(t, make)) })
			}
		})
	}
}

func used(n byte, until time.Time) sqlstore.UsedProof {
	return sqlstore.UsedProof{Digest: [32]byte{n, 1}, Until: until}
}

func use(t testing.TB, s *sqlstore.Store, p sqlstore.UsedProof) bool {
	t.Helper()
	first, err := s.UseProof(t.Context(), p)
	if err != nil {
		t.Error(err)
	}
	return first
}

// testOnlyOneIsFirst checks that of many concurrent uses exactly one is the
// first.
func testOnlyOneIsFirst(t *testing.T, s *sqlstore.Store) {
	for n := range byte(5) {
		var firsts atomic.Int64
		var group sync.WaitGroup
		for range 12 {
			group.Go(func() {
				if use(t, s, used(n, at(0))) {
					firsts.Add(1)
				}
			})
		}
		group.Wait()
		if firsts.Load() != 1 {
			t.Errorf("%d uses of one proof were the first", firsts.Load())
		}
	}
}

func testProofExpiry(t *testing.T, s *sqlstore.Store) {
	for n := range byte(6) {
		use(t, s, used(n, at(int64(n))))
	}
	for _, want := range []int{2, 2, 0} { // the uses 0 to 3, at most two at a time
		update(t, s, func(ctx context.Context, tx *sqlstore.Tx) error {
			n, err := tx.DeleteExpiredProofs(ctx, at(3), 2)
			if n != want {
				t.Errorf("removed %d, want %d", n, want)
			}
			return err
		})
	}
	for n := range byte(6) {
		if forgotten := use(t, s, used(n, at(9))); forgotten != (n <= 3) {
			t.Errorf("%d is forgotten: %v", n, forgotten)
		}
	}
}

// testResumeProofs checks that a process gets the uses that an earlier process has
// stored, and detects a crash of that process.
func testResumeProofs(t *testing.T, s *sqlstore.Store) {
	resume := func(all bool, want ...sqlstore.UsedProof) {
		t.Helper()
		got, _, isAll, err := s.ResumeProofs(t.Context(), at(5))
		byDigest := cmpopts.SortSlices(func(a, b sqlstore.UsedProof) bool { return a.Digest[0] < b.Digest[0] })
		if diff := cmp.Diff(want, got, byDigest, cmpopts.EquateEmpty()); err != nil || isAll != all || diff != "" {
			t.Errorf("all %v, want %v, %v:\n%s", isAll, all, err, diff)
		}
	}
	resume(true)
	use(t, s, used(1, at(10)))
	use(t, s, used(2, at(5)))
	resume(false, used(1, at(10))) // as after a crash
	var left []sqlstore.UsedProof
	for n := range byte(50) {
		left = append(left, used(n, at(20)))
	}
	if err := s.ConcludeProofs(t.Context(), left, time.Time{}); err != nil {
		t.Fatal(err)
	}
	resume(true, left...)
	resume(false, left...)
	if err := s.ConcludeProofs(t.Context(), nil, time.Time{}); err != nil {
		t.Fatal(err)
	}
	resume(true)
}
