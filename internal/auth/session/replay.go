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
	// proofRetention is how long after its time a proof is remembered: while it is valid,
	// and 10 s longer, so that a clock that is set back can hardly make it valid again.
	proofRetention = dpop.Window + 10*time.Second
	// replicaSkew is the tolerated difference between the clocks of replicas. A replica
	// deletes from the database only proofs that expired longer ago.
	replicaSkew = time.Minute
	// Bounds of one round of deletions.
	proofsPerDelete  = 10_000
	deletesPerFlush  = 200
	concludeDeadline = 10 * time.Second
)

// proofCache remembers the used proofs that are still valid. It never forgets a valid proof: a full cache refuses new
// proofs.
//
// All are in memory. If replicas share the database, each proof is also in the database, and the database decides which
// use was first. If this process is alone, the database gets only proofs with a future time, by the local clock. After
// a crash, every other used proof is older than the new process, and the new process refuses such proofs. A process
// that ends in order stores everything in the database.
type proofCache struct {
	store *sqlstore.Store
	most  int
	start time.Time

	resuming sync.Mutex
	resumed  bool
	floor    time.Time // a proof with an earlier time may have been used already

	mu      sync.Mutex
	used    map[[32]byte]struct{}
	expiry  map[int64][]ownedProof // by the second after which they are forgotten
	of      map[keyserver.ID]int   // number of proofs per principal
	swept   int64                  // the last second that was swept
	refuses bool                   // set by conclude
}

// proofShare: one principal may fill 1/proofShare of the cache. So it takes at least proofShare principals to fill the
// cache.
const proofShare = 4

// ownedProof is a used proof with its principal, zero if unknown.
type ownedProof struct {
	digest [32]byte
	owner  keyserver.ID
}

func newProofCache(store *sqlstore.Store, most int, start time.Time) *proofCache {
	return &proofCache{store: store, most: most, start: start, used: map[[32]byte]struct{}{}, expiry: map[int64][]ownedProof{}, of: map[keyserver.ID]int{}}
}

// use records the use of a verified proof by a principal. It returns PROOF_REPLAYED if
// the proof was used before, here or on another replica.
func (m *proofCache) use(ctx context.Context, by keyserver.ID, p dpop.Proof, now time.Time) error {
	if err := m.resume(ctx, now); err != nil {
		return err
	}
	if p.IssuedAt.Before(m.floor) {
		return fault.New(fault.ProofStale, "the DPoP proof is from before the last start of the service, so it may have been used; create a new one").
			Audited(fault.ReasonProofStale)
	}
	u := sqlstore.UsedProof{Digest: p.Digest(), Until: p.IssuedAt.Add(proofRetention)}
	if err := m.insert(by, u, now); err != nil {
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

var errReplayed = fault.New(fault.ProofReplayed, "the DPoP proof was used before; create a new one for each request").
	Audited(fault.ReasonProofReplayed)

func (m *proofCache) insert(by keyserver.ID, u sqlstore.UsedProof, now time.Time) error {
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
			"the DPoP replay cache is full (limit %d, --max-proofs); wait for the time in Retry-After", m.most)
	}
	if share := max(1, m.most/proofShare); !by.IsZero() && m.of[by] >= share {
		return fault.Temporary(fault.ProofCacheFull, fault.ScopeSession, m.room(now),
			"the DPoP replay cache is full for this principal (limit %d); send fewer requests per second", share)
	}
	m.add(by, u)
	return nil
}

// size returns the number of remembered proofs.
func (m *proofCache) size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.used)
}

func (m *proofCache) add(by keyserver.ID, u sqlstore.UsedProof) {
	second := u.Until.Unix() + 1
	m.used[u.Digest] = struct{}{}
	m.expiry[second] = append(m.expiry[second], ownedProof{u.Digest, by})
	if !by.IsZero() {
		m.of[by]++
	}
}

func (m *proofCache) remove(p ownedProof) {
	delete(m.used, p.digest)
	if p.owner.IsZero() {
		return
	}
	if m.of[p.owner]--; m.of[p.owner] == 0 {
		delete(m.of, p.owner)
	}
}

// sweep forgets expired proofs. It works by seconds, whose number is bounded by the time
// that a proof is remembered.
func (m *proofCache) sweep(now time.Time) {
	if now.Unix() == m.swept {
		return
	}
	m.swept = now.Unix()
	for second, proofs := range m.expiry {
		if second > m.swept {
			continue
		}
		for _, p := range proofs {
			m.remove(p)
		}
		delete(m.expiry, second)
	}
}

// room returns the time until a proof is forgotten.
func (m *proofCache) room(now time.Time) time.Duration {
	first := now.Add(proofRetention + dpop.Window).Unix()
	for second := range m.expiry {
		first = min(first, second)
	}
	return max(time.Unix(first, 0).Sub(now), time.Second)
}

// resume loads the proofs that the previous process stored. It works once, before the
// first use.
func (m *proofCache) resume(ctx context.Context, now time.Time) error {
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

// conclude stores all proofs for the next process. After it, use fails.
func (m *proofCache) conclude(ctx context.Context) error {
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

// prune deletes proofs from the database that no replica needs.
func (m *proofCache) prune(ctx context.Context, now time.Time) error {
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
