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
	// maxTallies bounds the kinds that are counted at the same time; a further kind ends
	// the oldest.
	maxTallies = 4096
)

// tallies bounds the audit rows of refused logins. The first refusal of a kind is a row immediately. Further refusals
// of that kind within a minute become one more row, with their number. Otherwise strangers could fill the volume.
type tallies struct {
	mu  sync.Mutex
	all map[tallied]*tally
}

// tallied is the part that rows of one kind have in common.
type tallied struct {
	operation, reason, object, from string
	kind                            keyserver.SessionKind
	principal                       keyserver.PrincipalRef
}

type tally struct {
	since time.Time
	last  keyserver.AuditEntry
	more  int64 // after the first, not yet in a row
}

// count reports whether to write the row now, and returns the counted rows that are due.
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

// ended returns and removes the rows whose counting time is over.
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

// rest returns and removes all counted rows.
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

// record makes the row of a refusal durable, or counts it in an earlier one.
func (m *Manager) record(ctx context.Context, row keyserver.AuditEntry) error {
	write, due := m.tallies.count(m.Clock(), row)
	m.writeTallies(ctx, due)
	if !write {
		return nil
	}
	return m.Audit.Write(ctx, row)
}

// writeTallies logs failures and continues: the first refusal of each kind already has
// its row.
func (m *Manager) writeTallies(ctx context.Context, due []keyserver.AuditEntry) {
	for _, row := range due {
		if err := m.Audit.Write(ctx, row); err != nil {
			m.Logger.WarnContext(ctx, "cannot write the audit row of refused logins", "logins", row.Count, "error", err)
		}
	}
}
