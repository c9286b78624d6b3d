package session

import (
	"context"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// housekeep writes the last uses of sessions in batches. It deletes expired sessions after keepExpired; until then,
// requests with them fail with SESSION_EXPIRED.
func (m *Manager) housekeep(ctx context.Context) {
	defer close(m.done)
	tick, recount := time.NewTicker(m.Idle/touchPeriods), time.NewTicker(tallyTime/4)
	defer tick.Stop()
	defer recount.Stop()
	for {
		select {
		case <-tick.C:
			m.flush(ctx)
			m.forgetProofs(ctx)
		case <-recount.C:
			m.writeTallies(ctx, m.tallies.ended(m.Clock()))
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			m.flush(last)
			cancel()
			return
		}
	}
}

// flush writes the last uses of sessions. It only logs an error: if a last use is lost in a crash, the session expires
// earlier, never later.
func (m *Manager) flush(ctx context.Context) {
	now := m.Clock()
	used := map[keyserver.ID]time.Time{}
	var touched []*held
	m.mu.Lock()
	for _, h := range m.byHash {
		if h.lastUsed.Load() > h.written.Load() {
			used[h.record.ID] = time.Unix(0, h.lastUsed.Load()).UTC()
			touched = append(touched, h)
		}
		if m.expired(h, now) && h.inFlight.Load() == 0 {
			m.evict(h)
		}
	}
	m.mu.Unlock()
	err := m.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		if err := tx.TouchSessions(ctx, used); err != nil {
			return err
		}
		if err := tx.DeleteStaleLogins(ctx, now, expiredPerFlush); err != nil {
			return err
		}
		_, err := tx.DeleteExpiredSessions(ctx, now.Add(-keepExpired), m.Idle, expiredPerFlush)
		return err
	})
	if err != nil {
		m.Logger.WarnContext(ctx, "cannot write the last use of sessions", "sessions", len(used), "error", err)
		return
	}
	for _, h := range touched {
		h.written.Store(used[h.record.ID].UnixNano())
	}
}

// forgetProofs deletes expired proofs. An error has no effect except that they use space.
func (m *Manager) forgetProofs(ctx context.Context) {
	if err := m.proofs.prune(ctx, m.Clock()); err != nil {
		m.Logger.WarnContext(ctx, "cannot delete expired DPoP proofs", "error", err)
	}
}
