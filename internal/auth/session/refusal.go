package session

import (
	"context"
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

const (
	// tallyTime is how long refusals of the same kind are counted into one row.
	tallyTime = time.Minute
	// maxTallies bounds what is counted at once; one more ends the oldest.
	maxTallies = 4096
)

// tallies bounds what refused logins cost: the first of a kind is a row at once,
// and the ones that follow within a minute are one more, with their count.
// Strangers could fill the volume otherwise.
type tallies struct {
	mu  sync.Mutex
	all map[tallied]*tally
}

// tallied is what rows of one kind have in common.
type tallied struct {
	operation, reason, object, from string
	kind                            keyserver.SessionKind
	principal                       keyserver.PrincipalRef
}

type tally struct {
	since time.Time
	last  keyserver.AuditEntry
	more  int64 // after the first, not in a row yet
}

// count says whether a row is to be written now, and which rows that were
// counted are due.
func (t *tallies) count(now time.Time, row keyserver.AuditEntry) (write bool, due []keyserver.AuditEntry) {
	of := tallied{row.Operation, row.Reason, row.Object, network(row.Address), row.Kind, row.Principal}
	t.mu.Lock()
	defer t.mu.Unlock()
	if held, ok := t.all[of]; ok && now.Sub(held.since) < tallyTime {
		held.more++
		held.last = row
		return false, nil
	}
	due = t.take(of, due)
	if len(t.all) >= maxTallies {
		due = t.takeOldest(due)
	}
	t.all[of] = &tally{since: now}
	return true, due
}

// ended are the rows of what has been counted for long enough.
func (t *tallies) ended(now time.Time) (due []keyserver.AuditEntry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for of, held := range t.all {
		if now.Sub(held.since) >= tallyTime {
			due = t.take(of, due)
		}
	}
	return due
}

// rest are the rows of everything that is still counted.
func (t *tallies) rest() (due []keyserver.AuditEntry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for of := range t.all {
		due = t.take(of, due)
	}
	return due
}

func (t *tallies) take(of tallied, due []keyserver.AuditEntry) []keyserver.AuditEntry {
	held, ok := t.all[of]
	if !ok {
		return due
	}
	delete(t.all, of)
	if held.more == 0 {
		return due
	}
	held.last.Count = held.more
	return append(due, held.last)
}

func (t *tallies) takeOldest(due []keyserver.AuditEntry) []keyserver.AuditEntry {
	var oldest tallied
	var since time.Time
	for of, held := range t.all {
		if since.IsZero() || held.since.Before(since) {
			oldest, since = of, held.since
		}
	}
	return t.take(oldest, due)
}

// record makes the row of a refusal durable, or counts it into one.
func (m *Manager) record(ctx context.Context, row keyserver.AuditEntry) error {
	write, due := m.tallies.count(m.Clock(), row)
	m.writeTallies(ctx, due)
	if !write {
		return nil
	}
	return m.Audit.Write(ctx, row)
}

// writeTallies is best effort: the first of each kind has its row.
func (m *Manager) writeTallies(ctx context.Context, due []keyserver.AuditEntry) {
	for _, row := range due {
		if err := m.Audit.Write(ctx, row); err != nil {
			m.Logger.WarnContext(ctx, "refused logins could not be recorded", "logins", row.Count, "error", err)
		}
	}
}
