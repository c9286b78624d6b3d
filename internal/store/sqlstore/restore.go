package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/pgcopy"
)

// restoringSuffix is behind the name of what is not whole yet: the file of an embedded
// database, and the table of PostgreSQL that says which version there is. Without that
// name no program takes it for a database of a key server.
const restoringSuffix = "restoring"

// changesApart is how far the change feed goes on behind where it was. Whoever has read
// more of it than there is now is behind it all the same, and reads everything anew.
const changesApart = 1 << 32

// Restore is a database that is made from a Snapshot. It has no name until Finish.
type Restore struct {
	cfg     Config
	dialect dialect
	store   *Store
	conn    *sql.Conn // loads, within one transaction
	ended   bool
}

// LatestSchema is the version of the schema that this program works on.
func LatestSchema(cfg Config) (int64, error) {
	_, files := dialectOf(cfg).migrations()
	return latestFile(files)
}

// NewRestore makes an empty database of a version in a directory, or a PostgreSQL
// database, that is empty. It refuses any other (ErrUnusable, ErrInUse), and a version
// that this program does not know (ErrNewerVersion). It has to be finished or abandoned.
func NewRestore(ctx context.Context, cfg Config, schema int64) (_ *Restore, err error) {
	if cfg, err = cfg.complete(); err != nil {
		return nil, err
	}
	target, err := LatestSchema(cfg)
	if err != nil {
		return nil, err
	}
	if schema > target {
		return nil, refuse(ErrNewerVersion, "the backup has version %d, and this program knows versions up to %d: restore it with the program that made it, or a later one", schema, target)
	}
	cfg.restore = true
	d := dialectOf(cfg)
	p, err := d.raise(ctx)
	if err != nil {
		return nil, err
	}
	s := newStore(cfg, d, p)
	s.writer = newWriter(d, p.write)
	r := &Restore{cfg: cfg, dialect: d, store: s}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Abandon())
		}
	}()
	provider, err := newProvider(d, p.write)
	if err != nil {
		return nil, err
	}
	if _, err := provider.UpTo(ctx, schema); err != nil {
		return nil, fmt.Errorf("make the tables of version %d: %w", schema, translate(d, err))
	}
	if r.conn, err = p.write.Conn(ctx); err != nil {
		return nil, translate(d, err)
	}
	if _, err := r.conn.ExecContext(ctx, `BEGIN`); err != nil {
		return nil, translate(d, err)
	}
	return r, nil
}

// Tables answers the tables that there are to load, by name.
func (r *Restore) Tables(ctx context.Context) (map[string]Table, error) {
	all, err := r.dialect.columns(ctx, r.loading())
	tables := map[string]Table{}
	for _, t := range all {
		if t.Name != journalTable && t.Name != versionsOf(r.dialect) {
			tables[t.Name] = t
		}
	}
	return tables, err
}

func (r *Restore) loading() reads {
	return reads{statements{run: r.conn, dialect: r.dialect, macs: r.store.macs}}
}

// Load reads the rows of a table, in place of those that migrations made, and answers how
// many there are. last is the last row of the audit trail.
func (r *Restore) Load(ctx context.Context, t Table, from io.Reader, last int64) (int64, error) {
	in := r.loading().statements
	if _, err := in.exec(ctx, `DELETE FROM `+t.Name); err != nil {
		return 0, err
	}
	if t.Name == "audit" {
		if err := r.dialect.ready(ctx, in, last); err != nil {
			return 0, err
		}
	}
	rows := pgcopy.NewReader(from, t.types())
	err := r.dialect.load(ctx, r.conn, t, rows)
	switch {
	case errors.Is(err, pgcopy.ErrDamaged), ctx.Err() != nil:
		return rows.Rows(), err
	case err != nil:
		return rows.Rows(), fmt.Errorf("load %s: %w", t.Name, translate(r.dialect, err))
	}
	return rows.Rows(), nil
}

// Loaded brings what was loaded to the version of this program, and adds the rows of the
// audit trail that are behind it.
func (r *Restore) Loaded(ctx context.Context, tail []keyserver.AuditEntry) error {
	if _, err := r.conn.ExecContext(ctx, `COMMIT`); err != nil {
		return translate(r.dialect, err)
	}
	if err := r.conn.Close(); err != nil {
		return translate(r.dialect, err)
	}
	r.conn = nil
	provider, err := newProvider(r.dialect, r.store.pools.write)
	if err != nil {
		return err
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("bring the database to the version of this program: %w", translate(r.dialect, err))
	}
	if len(tail) == 0 {
		return nil
	}
	return r.store.writeAlone(ctx, func(in statements) error { return r.follow(ctx, in, tail) })
}

// follow adds rows as the filling of the tables from a journal does.
func (r *Restore) follow(ctx context.Context, in statements, tail []keyserver.AuditEntry) error {
	head := audit.Head{Chain: onlyChain}
	var seq int64
	err := in.row(ctx, `SELECT s.value, c.position, c.head FROM sequences s JOIN audit_chains c ON c.chain = $1 WHERE s.name = 'audit'`, []any{onlyChain},
		&seq, &head.Position, intoHash(&head.Hash))
	if err != nil {
		return err
	}
	for i := range tail {
		row := &tail[i]
		if row.Chain != head.Chain || row.Position != head.Position+1 || row.Seq != seq+1 || !bytes.Equal(row.Previous[:], head.Hash[:]) {
			return refuse(ErrUnusable, "row %d of the audit trail in the backup does not follow row %d", row.Seq, seq)
		}
		seq, head.Position, head.Hash = row.Seq, row.Position, row.Hash
	}
	uses := map[keyserver.ID]int64{}
	for part := range slices.Chunk(tail, r.store.inserts.audit.sizes[0].rows) {
		var args []any
		for i := range part {
			args = appendAuditRow(args, &part[i])
		}
		if err := r.store.inserts.audit.run(ctx, in, args); err != nil {
			return err
		}
		if _, err := r.store.countUses(ctx, in, part, nil, uses); err != nil {
			return err
		}
	}
	return errors.Join(
		in.execOne(ctx, `UPDATE sequences SET value = $1 WHERE name = 'audit'`, seq),
		in.execOne(ctx, `UPDATE audit_chains SET position = $1, head = $2 WHERE chain = $3`, head.Position, head.Hash[:], onlyChain),
	)
}

// Store is the database, to look at once it is Loaded.
func (r *Restore) Store() *Store { return r.store }

// Finish ends what belonged to who served from the database, writes a last row to the
// trail, and gives the database its name. Used proofs stay used.
func (r *Restore) Finish(ctx context.Context, row keyserver.AuditEntry) error {
	if err := r.store.writeAlone(ctx, func(in statements) error {
		for _, text := range []string{`DELETE FROM sessions`, `DELETE FROM changes`} {
			if _, err := in.exec(ctx, text); err != nil {
				return err
			}
		}
		if err := in.execOne(ctx, `UPDATE sequences SET value = value + $1 WHERE name = 'changes'`, int64(changesApart)); err != nil {
			return err
		}
		return freeDuties(ctx, in)
	}); err != nil {
		return err
	}
	return r.end(ctx, row, func() error { return nil })
}

// freeDuties ends what processes had taken upon them that do not run any more.
func freeDuties(ctx context.Context, in statements) error {
	for _, text := range []string{`UPDATE leases SET until = 0`, `UPDATE audit_sinks SET until = 0`} {
		if _, err := in.exec(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// end writes a last row to the trail, and gives the database its name once complete is told.
func (r *Restore) end(ctx context.Context, row keyserver.AuditEntry, complete func() error) error {
	w, err := audit.NewWriter(ctx, r.store, audit.Options{Clock: r.cfg.Clock, Logger: r.cfg.Logger})
	if err != nil {
		return err
	}
	if err := errors.Join(w.Write(ctx, row), w.Close()); err != nil {
		return err
	}
	if err := complete(); err != nil {
		return err
	}
	if err := r.dialect.finish(context.WithoutCancel(ctx), r.store); err != nil {
		return err
	}
	r.ended = true
	return nil
}

// Abandon removes what there is, unless it was finished.
func (r *Restore) Abandon() error {
	if r.ended {
		return nil
	}
	r.ended = true
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if r.conn != nil {
		_, _ = r.conn.ExecContext(ctx, `ROLLBACK`) // it may never have begun
		_ = r.conn.Close()
	}
	return r.dialect.raze(ctx, r.store)
}

// versionsOf is the table that says which version there is.
func versionsOf(d dialect) string {
	if p, ok := d.(*postgres); ok && p.restore {
		return versionTable + "_" + restoringSuffix
	}
	return versionTable
}

// loadRows inserts rows by statements.
func loadRows(ctx context.Context, d dialect, in statements, t Table, rows *pgcopy.Reader) error {
	ins := newInsert(d, `INSERT INTO `+t.Name+` (`+t.columns()+`)`, len(t.Columns))
	most := ins.sizes[0].rows * ins.columns
	args := make([]any, 0, most)
	for {
		row, err := rows.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		args = append(args, row...)
		if err == nil && len(args) < most {
			continue
		}
		if failed := ins.run(ctx, in, args); failed != nil || err != nil {
			return failed
		}
		args = args[:0]
	}
}
