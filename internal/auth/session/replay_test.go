package session

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/dpop"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/migrated"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

var epoch = time.Unix(1_800_000_000, 0)

func onEachStore(t *testing.T, test func(t *testing.T, s *sqlstore.Store)) {
	t.Helper()
	for name, config := range map[string]func(*testing.T) sqlstore.Config{
		"SQLite":     func(t *testing.T) sqlstore.Config { return sqlstore.Config{Dir: migrated.Dir(t)} },
		"PostgreSQL": func(t *testing.T) sqlstore.Config { return sqlstore.Config{URL: migrated.Database(t)} },
	} {
		t.Run(name, func(t *testing.T) {
			s, err := sqlstore.Open(t.Context(), config(t))
			if err != nil {
				t.Fatal(err)
			}
			useRowKey(t, s)
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			test(t, s)
		})
	}
}

// try calls use for the proof with the given jti and time, and expects the error code want.
func (m *proofCache) try(t *testing.T, id string, issued, now time.Time, want fault.Code) {
	t.Helper()
	m.tryBy(t, keyserver.ID{}, id, issued, now, want)
}

func (m *proofCache) tryBy(t *testing.T, by keyserver.ID, id string, issued, now time.Time, want fault.Code) {
	t.Helper()
	err := m.use(t.Context(), by, dpop.Proof{Key: "key", ID: id, IssuedAt: issued}, now)
	if fault.CodeOf(err) != want {
		t.Errorf("%s: got %v, want %q", id, err, want)
	}
}

// TestProofsAreRememberedAsLongAsTheyPass: a proof is remembered until it expires, and a little longer.
func TestProofsAreRememberedAsLongAsTheyPass(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *sqlstore.Store) {
		m := newProofCache(s, 100, epoch)
		for _, issued := range []time.Duration{-dpop.Window, -time.Second / 2, 0, time.Second / 3, dpop.Window} {
			id := issued.String()
			m.try(t, id, epoch.Add(issued), epoch, "")
			for _, later := range []time.Duration{0, time.Second, dpop.Window, proofRetention} {
				m.try(t, id, epoch.Add(issued), epoch.Add(max(issued, 0)+later-max(0, -min(issued, 0))), fault.ProofReplayed)
			}
		}
		end := epoch.Add(2*dpop.Window + time.Minute)
		m.sweep(end)
		if len(m.used) != 0 || len(m.expiry) != 0 {
			t.Errorf("%d proofs and %d seconds are remembered for ever", len(m.used), len(m.expiry))
		}
		if err := m.prune(t.Context(), end.Add(replicaSkew)); err != nil {
			t.Error(err)
		}
		if left, _, _, err := s.ResumeProofs(t.Context(), time.Time{}); err != nil || len(left) != 0 {
			t.Errorf("the database keeps %v, %v", left, err)
		}
	})
}

// TestNoPrincipalFillsTheMemory: a principal can fill only its share of the cache. The share is free again when its
// proofs expire.
func TestNoPrincipalFillsTheMemory(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *sqlstore.Store) {
		m := newProofCache(s, 8, epoch)
		flood, honest := values.IDFromUint64(1), values.IDFromUint64(2)
		m.tryBy(t, flood, "a", epoch, epoch, "")
		m.tryBy(t, flood, "b", epoch, epoch, "")
		for i := range 10 {
			m.tryBy(t, flood, fmt.Sprint("more ", i), epoch, epoch, fault.ProofCacheFull)
		}
		err := m.use(t.Context(), flood, dpop.Proof{Key: "key", ID: "c", IssuedAt: epoch}, epoch)
		if f := fault.As(err); f == nil || f.Scope != fault.ScopeSession || f.RetryAfter <= 0 {
			t.Errorf("got %+v", err)
		}
		m.tryBy(t, flood, "a", epoch, epoch, fault.ProofReplayed)
		m.tryBy(t, honest, "d", epoch, epoch, "")
		later := epoch.Add(proofRetention + 2*time.Second)
		m.tryBy(t, flood, "e", later, later, "")
		if m.of[flood] != 1 || m.of[honest] != 0 {
			t.Errorf("counted: %v", m.of)
		}
	})
}

// TestAFullMemoryForgetsNothing: a full cache refuses new proofs until a remembered proof expires.
func TestAFullMemoryForgetsNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *sqlstore.Store) {
		m := newProofCache(s, 3, epoch)
		for n := range 3 {
			m.try(t, fmt.Sprint(n), epoch.Add(time.Duration(n)*time.Second), epoch, "")
		}
		m.try(t, "one more", epoch, epoch, fault.ProofCacheFull)
		err := m.use(t.Context(), keyserver.ID{}, dpop.Proof{Key: "key", ID: "again", IssuedAt: epoch}, epoch)
		f := fault.As(err)
		if f == nil || !f.Retryable || f.Scope != fault.ScopeProcess || f.RetryAfter < proofRetention || f.RetryAfter > proofRetention+2*time.Second {
			t.Fatalf("got %+v", f)
		}
		for n := range 3 {
			m.try(t, fmt.Sprint(n), epoch.Add(time.Duration(n)*time.Second), epoch, fault.ProofReplayed)
		}
		then := epoch.Add(f.RetryAfter)
		m.try(t, "one more", then, then, "")
		m.try(t, "two more", then, then, fault.ProofCacheFull)
	})
}

// TestACrashRevivesNoProof: a proof that a process has accepted is refused by the next process, even after a crash.
func TestACrashRevivesNoProof(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *sqlstore.Store) {
		start := epoch.Add(10*time.Second + 300*time.Millisecond)
		first := newProofCache(s, 100, epoch)
		first.try(t, "first ever", epoch, epoch, "") // there was no earlier process
		first.try(t, "plain", epoch.Add(9*time.Second), epoch.Add(9*time.Second), "")
		first.try(t, "future", epoch.Add(30*time.Second), epoch, "")

		crashed := newProofCache(s, 100, start)
		again := fault.ProofStale
		if s.Shared() {
			again = fault.ProofReplayed
		}
		crashed.try(t, "plain", epoch.Add(9*time.Second), start, again)
		crashed.try(t, "future", epoch.Add(30*time.Second), start, fault.ProofReplayed)
		crashed.try(t, "new", epoch.Add(11*time.Second), epoch.Add(11*time.Second), "")

		if err := crashed.conclude(t.Context()); err != nil {
			t.Fatal(err)
		}
		crashed.try(t, "after the end", epoch.Add(12*time.Second), epoch.Add(12*time.Second), fault.Overloaded)
		stopped := newProofCache(s, 100, epoch.Add(12*time.Second))
		stopped.try(t, "new", epoch.Add(11*time.Second), epoch.Add(12*time.Second), fault.ProofReplayed)
		stopped.try(t, "future", epoch.Add(30*time.Second), epoch.Add(12*time.Second), fault.ProofReplayed)
		stopped.try(t, "older than the start", epoch.Add(11*time.Second), epoch.Add(12*time.Second), "")
		// The crashed process had accepted this proof, but had not stored it for the next process.
		stopped.try(t, "plain", epoch.Add(9*time.Second), epoch.Add(12*time.Second), again)
	})
}

// TestMemoriesShareOneDatabase: a proof that one replica has accepted is refused by all other replicas.
func TestMemoriesShareOneDatabase(t *testing.T) {
	s, err := sqlstore.Open(t.Context(), sqlstore.Config{URL: migrated.Database(t)})
	if err != nil {
		t.Fatal(err)
	}
	useRowKey(t, s)
	defer s.Close()
	a, b := newProofCache(s, 100, epoch), newProofCache(s, 100, epoch)
	a.try(t, "one", epoch, epoch, "")
	b.try(t, "one", epoch, epoch, fault.ProofReplayed)
	b.try(t, "two", epoch, epoch, "")
	a.try(t, "two", epoch, epoch, fault.ProofReplayed)
}

// BenchmarkUse measures the cost of the replay cache per request, without the signature.
func BenchmarkUse(b *testing.B) {
	for name, config := range map[string]sqlstore.Config{"SQLite": {Dir: b.TempDir()}, "PostgreSQL": {URL: migrated.Database(b)}} {
		b.Run(name, func(b *testing.B) {
			s, err := sqlstore.Open(b.Context(), config)
			if err != nil {
				b.Fatal(err)
			}
			useRowKey(b, s)
			defer s.Close()
			m, n := newProofCache(s, 1<<30, epoch), 0
			b.ReportAllocs()
			for b.Loop() {
				n++
				if err := m.use(context.Background(), keyserver.ID{}, dpop.Proof{Key: "key", ID: fmt.Sprint(n), IssuedAt: epoch}, epoch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// useRowKey sets a key for the row MACs of a store that has no data key.
func useRowKey(t testing.TB, s *sqlstore.Store) {
	t.Helper()
	key, err := rowmac.Derive(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	s.UseRowKey(key)
}
