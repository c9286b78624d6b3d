package auditrows

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/journal"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

const onlyChain = 1

// filler writes rows from one journal to the tables of the audit log. One transaction changes the
// rows, the sequence, the last hash, the uses of keys and the position in the journal.
type filler struct {
	trail *AuditLog
	dir   string
	id    journal.ID
	args  []any                  // memory that commit uses again
	uses  map[keyserver.ID]int64 // memory that commit uses again
}

func newFiller(t *AuditLog, dir string, id journal.ID) filler {
	return filler{trail: t, dir: dir, id: id, uses: map[keyserver.ID]int64{}}
}

// begin records the journal in the database, and returns the position after the last audit row.
func (f *filler) begin(ctx context.Context) (logPosition, error) {
	var end logPosition
	err := f.trail.db.WriteAlone(ctx, func(in sqldb.Statements) error {
		if _, err := in.Exec(ctx, `INSERT INTO audit_chains (chain, position, head) VALUES ($1, 0, $2) ON CONFLICT (chain) DO NOTHING`,
			onlyChain, make([]byte, 32)); err != nil {
			return err
		}
		hit, err := in.Exec(ctx, `UPDATE audit_journal SET id = $1, life = $2, block = $3, open = 1 WHERE open = 0`,
			f.id[:], journal.Start.Life, journal.Start.Block)
		if err == nil && hit != 1 {
			err = errors.New("the database has a journal already")
		}
		if err != nil {
			return err
		}
		_, _, end, err = journalOf(ctx, in)
		return err
	})
	return end, err
}

// commit writes rows to the tables: the rows after the position from, up to the position to. If an earlier commit
// without a known result has already written the rows, commit writes nothing and returns nil.
func (f *filler) commit(ctx context.Context, from, to logPosition, rows []keyserver.AuditEntry) error {
	ctx = f.trail.db.Dialect().StatementContext(ctx)
	return f.trail.db.WriteAlone(ctx, func(in sqldb.Statements) error {
		_, id, now, err := journalOf(ctx, in)
		if err != nil || now == to && id == f.id && from.at != to.at {
			return err
		}
		if now != from || id != f.id {
			return fmt.Errorf("the audit log in the database ends at row %d, but this process has written up to row %d: another process changed it", now.seq, from.seq)
		}
		for part := range slices.Chunk(rows, f.trail.insertRows.Sizes[0].Rows) {
			f.args = f.args[:0]
			for i := range part {
				f.args = appendAuditRow(f.args, &part[i])
			}
			if err := f.trail.insertRows.Run(ctx, in, f.args); err != nil {
				return err
			}
		}
		if f.args, err = f.trail.countUses(ctx, in, rows, f.args[:0], f.uses); err != nil {
			return err
		}
		return errors.Join(
			in.ExecOne(ctx, `UPDATE sequences SET value = $1 WHERE name = 'audit'`, to.seq),
			in.ExecOne(ctx, `UPDATE audit_chains SET position = $1, head = $2 WHERE chain = $3`, to.head.Position, to.head.Hash[:], onlyChain),
			in.ExecOne(ctx, `UPDATE audit_journal SET life = $1, block = $2`, to.at.Life, to.at.Block),
		)
	})
}

// end records that the journal is no longer needed, and deletes its file.
func (f *filler) end(ctx context.Context, at logPosition) error {
	if err := f.trail.db.WriteAlone(ctx, func(in sqldb.Statements) error {
		return in.ExecOne(ctx, `UPDATE audit_journal SET open = 0 WHERE id = $1 AND life = $2 AND block = $3`, f.id[:], at.at.Life, at.at.Block)
	}); err != nil {
		return err
	}
	return journal.Remove(f.dir)
}

// journalOf returns the position after the last row in the tables of the audit log, the id of the journal, and whether
// the journal is in use.
func journalOf(ctx context.Context, in sqldb.Statements) (open bool, id journal.ID, end logPosition, err error) {
	var head []byte
	var opened int64
	err = in.Row(ctx, `SELECT j.open, j.id, j.life, j.block, s.value, coalesce(c.position, 0), c.head
		FROM audit_journal j JOIN sequences s ON s.name = 'audit' LEFT JOIN audit_chains c ON c.chain = $1`, []any{onlyChain},
		&opened, sqldb.Fixed(id[:]), &end.at.Life, &end.at.Block, &end.seq, &end.head.Position, &head)
	end.head.Chain = onlyChain
	copy(end.head.Hash[:], head)
	return opened != 0, id, end, err
}

// parseGroups reads groups of a journal and appends their rows to rows. It returns the position after these rows, or an
// error if a row does not follow the row before it.
func parseGroups(rows []keyserver.AuditEntry, end logPosition, groups []journal.Group) ([]keyserver.AuditEntry, logPosition, error) {
	var err error
	for _, g := range groups {
		n := len(rows)
		if rows, err = audit.ReadRecords(rows, g.Bytes); err != nil {
			return nil, end, err
		}
		for i := n; i < len(rows); i++ {
			row := &rows[i]
			if row.Chain != end.head.Chain || row.Position != end.head.Position+1 || row.Seq != end.seq+1 || !bytes.Equal(row.Previous[:], end.head.Hash[:]) {
				return nil, end, fmt.Errorf("row %d does not follow row %d", row.Seq, end.seq)
			}
			end.seq, end.head.Position, end.head.Hash = row.Seq, row.Position, row.Hash
		}
		end.at = g.End
	}
	return rows, end, nil
}

// journalRemedy ends the error messages about an unusable journal. It names the possible remedies.
const journalRemedy = "; restore the database and its journal from the same copy, or discard the rows that only the journal has: keyserver-operator audit discard-journal"

var errNoJournal = sqldb.Refuse(sqldb.ErrUnusable,
	"the database does not name its audit journal: the row in the table audit_journal was deleted; restore the database from a backup")

// recoverRows implements kind. It copies rows to the tables from the journal of a process that was
// not stopped properly.
func (e embedded) recoverRows(ctx context.Context) error {
	if e.opts.Copied != nil {
		_, err := e.db.ExecCommitted(ctx, `UPDATE audit_journal SET open = 0`)
		return err
	}
	err := e.replay(ctx)
	if errors.Is(err, sqldb.ErrUnusable) && e.opts.Discard != nil {
		return e.discard(ctx)
	}
	return err
}

func (e embedded) replay(ctx context.Context) error {
	open, id, end, err := journalOf(ctx, e.db.Statements)
	if errors.Is(err, sqldb.ErrNotFound) {
		return errNoJournal
	}
	if err != nil {
		return err
	}
	there, err := journal.Load(e.d.Dir)
	missing := errors.Is(err, journal.ErrMissing)
	switch {
	case missing && !open:
		return nil
	case err != nil:
		return sqldb.Refuse(sqldb.ErrUnusable, "%s%s", err, journalRemedy)
	case !open:
		return e.removeStaleJournal(id, there, end)
	}
	groups, err := there.Groups(id, end.at)
	if err != nil {
		return sqldb.Refuse(sqldb.ErrUnusable, "%s%s", err, journalRemedy)
	}
	f := newFiller(e.AuditLog, e.d.Dir, id)
	all := 0
	var rows []keyserver.AuditEntry // memory that each commit uses again
	for len(groups) > 0 {
		n := min(len(groups), fillRows)
		var to logPosition
		rows, to, err = parseGroups(rows[:0], end, groups[:n])
		if err != nil {
			return sqldb.Refuse(sqldb.ErrUnusable, "the audit journal does not belong to the database: %s%s", err, journalRemedy)
		}
		if err := f.commit(ctx, end, to, rows); err != nil {
			return err
		}
		end, groups, all = to, groups[n:], all+len(rows)
	}
	if all > 0 {
		e.db.Options().Logger.Info("audit rows were copied from the journal of a process that was not stopped properly", "rows", all)
	}
	return f.end(ctx, end)
}

// removeStaleJournal deletes a journal that the database does not need. Such a journal remains if a process ended
// before its first row, or after all its rows were in the tables. removeStaleJournal fails if the journal has rows that
// are in no table.
func (e embedded) removeStaleJournal(id journal.ID, there *journal.Content, end logPosition) error {
	if err := e.checkStaleJournal(id, there, end); err != nil {
		return sqldb.Refuse(sqldb.ErrUnusable, "%s%s", err, journalRemedy)
	}
	return journal.Remove(e.d.Dir)
}

// checkStaleJournal returns an error if a journal that the database does not need has rows that are in
// no table.
func (e embedded) checkStaleJournal(id journal.ID, there *journal.Content, end logPosition) error {
	from := journal.Start
	if id == there.ID {
		from = end.at
	}
	groups, err := there.Groups(there.ID, from)
	if err == nil && len(groups) > 0 {
		err = fmt.Errorf("the audit journal in %s has rows that do not belong to the database there", e.d.Dir)
	}
	return err
}

const discardedSuffix = ".discarded"

// discard renames the file of the journal, and records that the database has no journal.
func (e embedded) discard(ctx context.Context) error {
	name := filepath.Join(e.d.Dir, journal.File)
	if err := os.Rename(name, name+discardedSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("rename the audit journal: %w", err)
	}
	e.opts.Discard()
	return e.db.WriteAlone(ctx, func(in sqldb.Statements) error {
		return in.ExecOne(ctx, `UPDATE audit_journal SET open = 0`)
	})
}

// AppendTail appends the rows of tail to the tables. It fails if they do not follow the last
// row of the tables.
func (t *AuditLog) AppendTail(ctx context.Context, in sqldb.Statements, tail []keyserver.AuditEntry) error {
	head := audit.Head{Chain: onlyChain}
	var seq int64
	err := in.Row(ctx, `SELECT s.value, c.position, c.head FROM sequences s JOIN audit_chains c ON c.chain = $1 WHERE s.name = 'audit'`, []any{onlyChain},
		&seq, &head.Position, sqldb.IntoHash(&head.Hash))
	if err != nil {
		return err
	}
	for i := range tail {
		row := &tail[i]
		if row.Chain != head.Chain || row.Position != head.Position+1 || row.Seq != seq+1 || !bytes.Equal(row.Previous[:], head.Hash[:]) {
			return sqldb.Refuse(sqldb.ErrUnusable, "row %d of the audit log in the backup does not follow row %d", row.Seq, seq)
		}
		seq, head.Position, head.Hash = row.Seq, row.Position, row.Hash
	}
	uses := map[keyserver.ID]int64{}
	for part := range slices.Chunk(tail, t.insertRows.Sizes[0].Rows) {
		var args []any
		for i := range part {
			args = appendAuditRow(args, &part[i])
		}
		if err := t.insertRows.Run(ctx, in, args); err != nil {
			return err
		}
		if _, err := t.countUses(ctx, in, part, nil, uses); err != nil {
			return err
		}
	}
	return errors.Join(
		in.ExecOne(ctx, `UPDATE sequences SET value = $1 WHERE name = 'audit'`, seq),
		in.ExecOne(ctx, `UPDATE audit_chains SET position = $1, head = $2 WHERE chain = $3`, head.Position, head.Hash[:], onlyChain),
	)
}
