package sqldb

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// MaxChangePage is the maximum number of changes in one page.
const MaxChangePage = 1000

// pruneSteps is how often old changes are deleted while KeptChanges new changes are stored.
const pruneSteps = 64

// Recorder collects the changes of a write transaction without duplicates.
type Recorder struct {
	changes  []keyserver.Change // Seq is 0 until the commit
	recorded map[keyserver.Change]bool
}

// NewRecorder returns a Recorder without changes.
func NewRecorder() *Recorder { return &Recorder{recorded: make(map[keyserver.Change]bool)} }

// Record notes a change, once per transaction.
func (r *Recorder) Record(kind keyserver.ChangeKind, id keyserver.ID, action keyserver.ChangeAction) {
	c := keyserver.Change{Kind: kind, ID: id, Action: action}
	if !r.recorded[c] {
		r.recorded[c] = true
		r.changes = append(r.changes, c)
	}
}

// Changes returns the recorded changes in order.
func (r *Recorder) Changes() []keyserver.Change { return r.changes }

// storeChanges numbers the changes of a transaction and stores them. The sequence of these numbers stays locked until
// the commit. So the numbers follow the order of the commits and have no gaps.
func (db *DB) storeChanges(ctx context.Context, in Statements, changes []keyserver.Change) ([]keyserver.Change, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	n := int64(len(changes))
	last, err := nextInSequence(ctx, in, "changes", n)
	if err != nil {
		return nil, err
	}
	args := make([]any, 0, len(changes)*db.inserts.Columns)
	for i := range changes {
		c := &changes[i]
		c.Seq = last - n + 1 + int64(i)
		args = append(args, c.Seq, string(c.Kind), c.ID[:], string(c.Action))
	}
	if err := db.inserts.Run(ctx, in, args); err != nil {
		return nil, err
	}
	if step := max(1, db.opts.KeptChanges/pruneSteps); last/step != (last-n)/step {
		if _, err := in.Exec(ctx, `DELETE FROM changes WHERE seq <= $1`, last-db.opts.KeptChanges); err != nil {
			return nil, err
		}
	}
	return changes, db.Dialect().Announce(ctx, in)
}

// nextInSequence reserves the next n numbers of a sequence and returns the last of these numbers.
func nextInSequence(ctx context.Context, in Statements, name string, n int64) (int64, error) {
	var last int64
	err := in.Row(ctx, `UPDATE sequences SET value = value + $1 WHERE name = $2 RETURNING value`, []any{n, name}, &last)
	return last, err
}

// Feed has the queries of the change feed.
type Feed struct{ sql Statements }

// NewFeed returns a Feed whose queries run on in.
func NewFeed(in Statements) Feed { return Feed{in} }

// ChangeHead returns the number of the last committed change, or 0 if there is none.
func (f Feed) ChangeHead(ctx context.Context) (int64, error) {
	var head int64
	err := f.sql.Row(ctx, `SELECT value FROM sequences WHERE name = 'changes'`, nil, &head)
	return head, err
}

// Changes returns up to limit (at most 1000) changes whose numbers are greater than
// after. If some of these changes were pruned, or if after is greater than the last
// number, the page has Reset set, and its Cursor is the last number.
func (f Feed) Changes(ctx context.Context, after int64, limit int) (keyserver.ChangePage, error) {
	limit = min(max(limit, 1), MaxChangePage)
	// Read the last number before the changes: all changes up to that number are
	// committed, so the next query can read them unless they were pruned.
	head, err := f.ChangeHead(ctx)
	if err != nil {
		return keyserver.ChangePage{}, err
	}
	if after == head {
		return keyserver.ChangePage{Cursor: after}, nil
	}
	page := keyserver.ChangePage{}
	err = f.sql.Each(ctx, `SELECT seq, kind, id, action FROM changes WHERE seq > $1 ORDER BY seq LIMIT $2`,
		[]any{after, limit}, func(row Scanner) error {
			var c keyserver.Change
			if err := row.Scan(&c.Seq, &c.Kind, IntoID(&c.ID), &c.Action); err != nil {
				return err
			}
			page.Changes = append(page.Changes, c)
			return nil
		})
	if err != nil {
		return keyserver.ChangePage{}, err
	}
	// Numbers have no gaps. So changes are missing only if the first row is not after+1.
	if n := len(page.Changes); n > 0 && page.Changes[0].Seq == after+1 {
		page.Cursor = page.Changes[n-1].Seq
		return page, nil
	}
	return keyserver.ChangePage{Cursor: head, Reset: true}, nil
}
