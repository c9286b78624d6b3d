package session

import (
	"context"
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

const (
	// tallyTime is the period in which refusals of the same kind are counted in one row.
	tallyTime = time.Minute
	// maxTallies is the maximum number of kinds that are counted. A further kind ends the count of the oldest kind.
	maxTallies = 4096
)

// tallies limits the audit rows of refused logins. The first refusal of a kind gets its own row immediately. Further
// refusals of that kind within a minute become one row with their number. Otherwise clients without credentials could
// fill the volume.
type tallies struct {
	mu  sync.Mutex
	all map[refusalKind]*tally
}

// refusalKind is the kind of a refusal: the fields that are equal in all its rows.
type refusalKind struct {
	operation, reason, object, from string
	kind                            keyserver.SessionKind
	principal                       keyserver.PrincipalRef
}

type tally struct {
	since time.Time
	last  keyserver.AuditEntry
	more  int64 // number of refusals after the first, not yet in a row
}

// count reports whether the caller must write the row now. It also returns rows of earlier counts that have ended.
func (t *tallies) count(now time.Time, row keyserver.AuditEntry) (write bool, due []keyserver.AuditEntry) {
	of := refusalKind{row.Operation, row.Reason, row.Object, network(row.Address), row.Kind, row.Principal}
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

func (t *tallies) rest() (due []keyserver.AuditEntry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for of := range t.all {
		due = t.take(of, due)
	}
	return due
}

func (t *tallies) take(of refusalKind, due []keyserver.AuditEntry) []keyserver.AuditEntry {
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
	var oldest refusalKind
	var since time.Time
	for of, held := range t.all {
		if since.IsZero() || held.since.Before(since) {
			oldest, since = of, held.since
		}
	}
	return t.take(oldest, due)
}

// record writes a durable audit row for a refusal, or counts the refusal in an earlier row.
func (m *Manager) record(ctx context.Context, row keyserver.AuditEntry) error {
	write, due := m.tallies.count(m.Clock(), row)
	m.writeTallies(ctx, due)
	if !write {
		return nil
	}
	return m.Audit.Write(ctx, row)
}

// writeTallies writes rows of counted refusals. It only logs errors: the first refusal of each kind already has a row.
func (m *Manager) writeTallies(ctx context.Context, due []keyserver.AuditEntry) {
	for _, row := range due {
		if err := m.Audit.Write(ctx, row); err != nil {
			m.Logger.WarnContext(ctx, "cannot write the audit row of refused logins", "logins", row.Count, "error", err)
		}
	}
}
