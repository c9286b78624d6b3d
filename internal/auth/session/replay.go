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
	// proofRetention is how long a proof is remembered after its time: as long as it is valid, plus 10 s, in case the
	// clock is set back.
	proofRetention = dpop.Window + 10*time.Second
	// replicaSkew is the tolerated difference between the clocks of replicas. A replica keeps expired proofs in the
	// database for this time.
	replicaSkew = time.Minute
	// Limits of one round of deletions.
	proofsPerDelete  = 10_000
	deletesPerFlush  = 200
	concludeDeadline = 10 * time.Second
)

// proofCache remembers the used proofs that are still valid. It never forgets a valid proof: if the cache is full, it
// refuses new proofs.
//
// All proofs are in memory. If replicas share the database, each proof is also in the database, and the database
// decides which use was first. A single process stores only proofs whose time is in the future, by the local clock.
// After a crash, all other used proofs are older than the start of the new process, and the new process refuses such
// proofs. At an orderly shutdown, a process stores all proofs in the database.
type proofCache struct {
	store *sqlstore.Store
	most  int
	start time.Time

	resuming sync.Mutex
	resumed  bool
	floor    time.Time // proofs with an earlier time are refused, because they may have been used

	mu      sync.Mutex
	used    map[[32]byte]struct{}
	expiry  map[int64][]ownedProof // proofs by the second in which they are forgotten
	of      map[keyserver.ID]int   // number of proofs per principal
	swept   int64                  // the second of the last sweep
	refuses bool                   // set by conclude; use refuses all proofs
}

// proofShare limits the proofs of one principal to 1/proofShare of the cache.
const proofShare = 4

// ownedProof is a used proof and its principal. The principal is zero if it is unknown.
type ownedProof struct {
	digest [32]byte
	owner  keyserver.ID
}

func newProofCache(store *sqlstore.Store, most int, start time.Time) *proofCache {
	return &proofCache{store: store, most: most, start: start, used: map[[32]byte]struct{}{}, expiry: map[int64][]ownedProof{}, of: map[keyserver.ID]int{}}
}

// use records that a principal has used a verified proof. It returns PROOF_REPLAYED if the proof was used before, in
// this process or on another replica.
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

// sweep forgets expired proofs. Proofs are grouped by second, so a sweep visits few groups.
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

// room returns the time until the next proof is forgotten, at least 1 s.
func (m *proofCache) room(now time.Time) time.Duration {
	first := now.Add(proofRetention + dpop.Window).Unix()
	for second := range m.expiry {
		first = min(first, second)
	}
	return max(time.Unix(first, 0).Sub(now), time.Second)
}

// resume loads the proofs that the previous process stored. Only the first successful call has an effect.
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

// conclude stores all proofs for the next process. After conclude, use refuses all proofs.
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

// prune deletes proofs from the database that have expired on all replicas.
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
