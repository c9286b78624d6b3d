package snapshot

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"

	"github.com/keyserver-operator/keyserver-operator/internal/store/auditrows"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/pgcopy"
)

// changeSeqGap is the gap in the numbers of changes after a restore. A client may have read changes that were not
// restored. The number of its last change is then within the gap, so it reads all objects again.
const changeSeqGap = 1 << 32

// Restoring is a database that is being created from a Snapshot. It gets its final name in Finish.
type Restoring struct {
	db     *sqldb.DB
	trail  *auditrows.AuditLog
	target target
	tables tables
	conn   *sql.Conn // connection of Load, which has an open transaction
	ended  bool
}

// target is a kind of database that can be created from a Snapshot.
type target interface {
	sqldb.Dialect
	// ClaimEmpty opens an empty database, or creates one, and locks it for this process.
	ClaimEmpty(ctx context.Context) (sqldb.Pools, error)
	// Finish closes the database and gives it its final name.
	Finish(ctx context.Context, db *sqldb.DB) error
	// Discard closes the database and removes it.
	Discard(ctx context.Context, db *sqldb.DB) error
}

// ClaimEmpty opens an empty directory or an empty PostgreSQL database for a restore. It rejects a target that is in use
// (ErrInUse) or not empty (ErrUnusable), and a version that this program does not know (ErrNewerVersion).
func ClaimEmpty(ctx context.Context, d sqldb.Dialect, o sqldb.Options, schema int64) (*sqldb.DB, error) {
	newest, err := sqldb.LatestSchema(d)
	if err != nil {
		return nil, err
	}
	if schema > newest {
		return nil, sqldb.Refuse(sqldb.ErrNewerVersion, "the backup has version %d, but this program knows versions up to %d; restore it with the release that made it, or a later one", schema, newest)
	}
	to, ok := d.(target)
	if !ok {
		return nil, fmt.Errorf("a backup cannot be restored into %T", d)
	}
	p, err := to.ClaimEmpty(ctx)
	if err != nil {
		return nil, err
	}
	return sqldb.NewRestored(d, o, p), nil
}

// BeginRestore creates the tables of a schema version in a database from ClaimEmpty. The caller has to finish or
// abandon the restore. If BeginRestore fails, it removes the database.
func BeginRestore(ctx context.Context, db *sqldb.DB, trail *auditrows.AuditLog, schema int64) (_ *Restoring, err error) {
	d := db.Dialect()
	r := &Restoring{db: db, trail: trail, target: d.(target), tables: tablesOf(d)} //nolint:errcheck,forcetypeassert // ClaimEmpty checked
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Abandon())
		}
	}()
	if err := sqldb.MigrateUpTo(ctx, d, db.Pools().Write, schema); err != nil {
		return nil, err
	}
	if r.conn, err = db.Pools().Write.Conn(ctx); err != nil {
		return nil, sqldb.Translate(d, err)
	}
	if _, err := r.conn.ExecContext(ctx, `BEGIN`); err != nil {
		return nil, sqldb.Translate(d, err)
	}
	return r, nil
}

// Tables returns the tables to load, by name.
func (r *Restoring) Tables(ctx context.Context) (map[string]Table, error) {
	all, err := r.tables.columns(ctx, r.loading())
	tables := map[string]Table{}
	for _, t := range all {
		if t.Name != journalTable && t.Name != r.target.VersionTable() {
			tables[t.Name] = t
		}
	}
	return tables, err
}

func (r *Restoring) loading() sqldb.Statements {
	return sqldb.Statements{Run: r.conn, Dialect: r.target}
}

// Load reads the rows of a table and returns their number. These rows replace the rows that migrations created. The
// parameter last is the last row of the audit log.
func (r *Restoring) Load(ctx context.Context, t Table, from io.Reader, last int64) (int64, error) {
	in := r.loading()
	if _, err := in.Exec(ctx, `DELETE FROM `+t.Name); err != nil {
		return 0, err
	}
	if t.Name == "audit" {
		if err := r.tables.ready(ctx, in, last); err != nil {
			return 0, err
		}
	}
	rows := pgcopy.NewReader(from, t.types())
	err := r.tables.load(ctx, r.conn, t, rows)
	switch {
	case errors.Is(err, pgcopy.ErrDamaged), ctx.Err() != nil:
		return rows.Rows(), err
	case err != nil:
		return rows.Rows(), fmt.Errorf("load %s: %w", t.Name, sqldb.Translate(r.target, err))
	}
	return rows.Rows(), nil
}

// CommitLoad commits the loaded tables, migrates them to the version of this program, and appends tail, the last audit
// rows.
func (r *Restoring) CommitLoad(ctx context.Context, tail []keyserver.AuditEntry) error {
	if _, err := r.conn.ExecContext(ctx, `COMMIT`); err != nil {
		return sqldb.Translate(r.target, err)
	}
	if err := r.conn.Close(); err != nil {
		return sqldb.Translate(r.target, err)
	}
	r.conn = nil
	if err := sqldb.MigrateUp(ctx, r.target, r.db.Pools().Write); err != nil {
		return err
	}
	if len(tail) == 0 {
		return nil
	}
	return r.db.WriteAlone(ctx, func(in sqldb.Statements) error { return r.trail.AppendTail(ctx, in, tail) })
}

// Finish deletes sessions and changes, ends leases, appends a row to the audit log, and gives the database its final
// name. It keeps the used DPoP proofs.
func (r *Restoring) Finish(ctx context.Context, row keyserver.AuditEntry) error {
	if err := r.db.WriteAlone(ctx, func(in sqldb.Statements) error {
		for _, text := range []string{`DELETE FROM sessions`, `DELETE FROM changes`} {
			if _, err := in.Exec(ctx, text); err != nil {
				return err
			}
		}
		if err := in.ExecOne(ctx, `UPDATE sequences SET value = value + $1 WHERE name = 'changes'`, int64(changeSeqGap)); err != nil {
			return err
		}
		return releaseLeases(ctx, in)
	}); err != nil {
		return err
	}
	return r.end(ctx, row, func() error { return nil })
}

// FinishMove is Finish for a move to another database: sessions stay open, and the change feed continues. It calls
// moved before the database gets its final name. After that call, the source must not change.
func (r *Restoring) FinishMove(ctx context.Context, row keyserver.AuditEntry, moved func() error) error {
	if err := r.db.WriteAlone(ctx, func(in sqldb.Statements) error { return releaseLeases(ctx, in) }); err != nil {
		return err
	}
	return r.end(ctx, row, moved)
}

// releaseLeases ends the leases of the processes that used the old database.
func releaseLeases(ctx context.Context, in sqldb.Statements) error {
	for _, text := range []string{`UPDATE leases SET until = 0`, `UPDATE audit_sinks SET until = 0`} {
		if _, err := in.Exec(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// end appends a row to the audit log, calls complete, and then gives the database its final name.
func (r *Restoring) end(ctx context.Context, row keyserver.AuditEntry, complete func() error) error {
	w, err := audit.NewWriter(ctx, r.trail, audit.Options{Clock: r.db.Options().Clock, Logger: r.db.Options().Logger})
	if err != nil {
		return err
	}
	if err := errors.Join(w.Write(ctx, row), w.Close()); err != nil {
		return err
	}
	if err := complete(); err != nil {
		return err
	}
	if err := r.target.Finish(context.WithoutCancel(ctx), r.db); err != nil {
		return err
	}
	r.ended = true
	return nil
}

// Abandon removes the database, unless it was finished.
func (r *Restoring) Abandon() error {
	if r.ended {
		return nil
	}
	r.ended = true
	ctx, cancel := context.WithTimeout(context.Background(), sqldb.EndTimeout)
	defer cancel()
	if r.conn != nil {
		_, _ = r.conn.ExecContext(ctx, `ROLLBACK`) // there may be no transaction
		_ = r.conn.Close()
	}
	return r.target.Discard(ctx, r.db)
}

// loadRows inserts rows by INSERT statements.
func loadRows(ctx context.Context, d sqldb.Dialect, in sqldb.Statements, t Table, rows *pgcopy.Reader) error {
	ins := sqldb.NewInsert(d, `INSERT INTO `+t.Name+` (`+t.columns()+`)`, len(t.Columns))
	most := ins.Sizes[0].Rows * ins.Columns
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
		if failed := ins.Run(ctx, in, args); failed != nil || err != nil {
			return failed
		}
		args = args[:0]
	}
}
