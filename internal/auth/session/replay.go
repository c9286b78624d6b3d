package session

import (
	"context"
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/dpop"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

const (
	// rememberFor is how long after its time a proof is remembered: as long as
	// it passes, and then until a clock that is set back can hardly revive it.
	rememberFor = dpop.Window + 10*time.Second
	// replicaSkew is how far the clocks of replicas may lie apart before one
	// removes from the database what another still needs.
	replicaSkew = time.Minute
	// Bounds of one round of removing.
	proofsPerDelete  = 10_000
	deletesPerFlush  = 200
	concludeDeadline = 10 * time.Second
)

// proofMemory remembers the proofs that were used and could be used again. It
// never forgets one of these: a full memory refuses.
//
// All are in memory. Where replicas share the database, each is in the
// database as well, which decides who was first. Where this process is alone,
// the database takes only what a crash must not undo: proofs from the future,
// by the clock here. After a crash every other proof that had been used is
// older than the new process, and what is older than that it refuses.
// A process that ends in order leaves everything in the database.
type proofMemory struct {
	store *sqlstore.Store
	most  int
	start time.Time

	resuming sync.Mutex
	resumed  bool
	floor    time.Time // a proof from before may have been used

	mu      sync.Mutex
	used    map[[32]byte]struct{}
	expiry  map[int64][]ownedProof // by the second after which it is forgotten
	of      map[keyserver.ID]int   // how many are a principal's
	swept   int64                  // the last second that was forgotten
	refuses bool                   // concluded
}

// proofShare is the part of the memory that one principal may fill: so many of
// them it takes to leave others none.
const proofShare = 4

// ownedProof is a proof with who used it, zero where that is not known any more.
type ownedProof struct {
	digest [32]byte
	owner  keyserver.ID
}

func newProofMemory(store *sqlstore.Store, most int, start time.Time) *proofMemory {
	return &proofMemory{store: store, most: most, start: start, used: map[[32]byte]struct{}{}, expiry: map[int64][]ownedProof{}, of: map[keyserver.ID]int{}}
}

// use notes the use of a verified proof by a principal. It answers PROOF_REPLAYED
// for one that was used before, here or on another replica.
func (m *proofMemory) use(ctx context.Context, by keyserver.ID, p dpop.Proof, now time.Time) error {
	if err := m.resume(ctx, now); err != nil {
		return err
	}
	if p.IssuedAt.Before(m.floor) {
		return fault.New(fault.ProofStale, "the DPoP proof is older than this start of the service, which does not know what was used before; make a new one").
			Audited(fault.ReasonProofStale)
	}
	u := sqlstore.UsedProof{Digest: p.Digest(), Until: p.IssuedAt.Add(rememberFor)}
	if err := m.remember(by, u, now); err != nil {
		return err
	}
	if !m.store.Shared() && !p.IssuedAt.After(now) {
		return nil
	}
	first, err := m.store.UseProof(ctx, u)
	if err == nil && !first {
		err = errReplayed
	}
	return err
}

var errReplayed = fault.New(fault.ProofReplayed, "the DPoP proof was used before; make a new one for each request").
	Audited(fault.ReasonProofReplayed)

func (m *proofMemory) remember(by keyserver.ID, u sqlstore.UsedProof, now time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep(now)
	if _, known := m.used[u.Digest]; known {
		return errReplayed
	}
	if m.refuses {
		return fault.Temporary(fault.Overloaded, fault.ScopeProcess, time.Second, "the service is shutting down; try again")
	}
	if len(m.used) >= m.most {
		return fault.Temporary(fault.ProofCacheFull, fault.ScopeProcess, m.room(now),
			"%d proofs are remembered, which is the most; the next is forgotten as Retry-After says", m.most)
	}
	if share := max(1, m.most/proofShare); !by.IsZero() && m.of[by] >= share {
		return fault.Temporary(fault.ProofCacheFull, fault.ScopeSession, m.room(now),
			"%d proofs of the principal are remembered, which is the most of one; send fewer requests a second", share)
	}
	m.add(by, u)
	return nil
}

// size is how many proofs are remembered.
func (m *proofMemory) size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.used)
}

func (m *proofMemory) add(by keyserver.ID, u sqlstore.UsedProof) {
	second := u.Until.Unix() + 1
	m.used[u.Digest] = struct{}{}
	m.expiry[second] = append(m.expiry[second], ownedProof{u.Digest, by})
	if !by.IsZero() {
		m.of[by]++
	}
}

func (m *proofMemory) forget(p ownedProof) {
	delete(m.used, p.digest)
	if p.owner.IsZero() {
		return
	}
	if m.of[p.owner]--; m.of[p.owner] == 0 {
		delete(m.of, p.owner)
	}
}

// sweep forgets what can be used no more. Proofs of one second go together, and
// there are no more such seconds than a proof can be remembered.
func (m *proofMemory) sweep(now time.Time) {
	if now.Unix() == m.swept {
		return
	}
	m.swept = now.Unix()
	for second, proofs := range m.expiry {
		if second > m.swept {
			continue
		}
		for _, p := range proofs {
			m.forget(p)
		}
		delete(m.expiry, second)
	}
}

// room is how long it takes until something is forgotten.
func (m *proofMemory) room(now time.Time) time.Duration {
	first := now.Add(rememberFor + dpop.Window).Unix()
	for second := range m.expiry {
		first = min(first, second)
	}
	return max(time.Unix(first, 0).Sub(now), time.Second)
}

// resume takes up what the process before left, once, before the first use.
func (m *proofMemory) resume(ctx context.Context, now time.Time) error {
	if m.store.Shared() {
		return nil
	}
	m.resuming.Lock()
	defer m.resuming.Unlock()
	if m.resumed {
		return nil
	}
	used, since, all, err := m.store.ResumeProofs(ctx, now)
	if err != nil {
		return err
	}
	if m.floor = since; !all {
		m.floor = m.start
	}
	m.mu.Lock()
	for _, u := range used {
		m.add(keyserver.ID{}, u)
	}
	m.mu.Unlock()
	m.resumed = true
	return nil
}

// conclude leaves everything to the next process, and uses no more proofs.
func (m *proofMemory) conclude(ctx context.Context) error {
	m.resuming.Lock()
	defer m.resuming.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuses = true
	if !m.resumed {
		return nil
	}
	var left []sqlstore.UsedProof
	for second, proofs := range m.expiry {
		for _, p := range proofs {
			left = append(left, sqlstore.UsedProof{Digest: p.digest, Until: time.Unix(second, 0)})
		}
	}
	return m.store.ConcludeProofs(ctx, left, m.floor)
}

// prune removes from the database what no replica needs any more.
func (m *proofMemory) prune(ctx context.Context, now time.Time) error {
	for range deletesPerFlush {
		var n int
		err := m.store.Update(ctx, func(tx *sqlstore.Tx) (err error) {
			n, err = tx.DeleteExpiredProofs(ctx, now.Add(-replicaSkew), proofsPerDelete)
			return err
		})
		if err != nil || n < proofsPerDelete {
			return err
		}
	}
	return nil
}
