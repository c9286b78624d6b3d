package auditrows

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/keyserver-operator/keyserver-operator/internal/store/postgres"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/journal"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Reads are the queries of the audit log.
type Reads struct{ sql sqldb.Statements }

// NewReads returns Reads whose queries run on in.
func NewReads(in sqldb.Statements) Reads { return Reads{in} }

// Writes are the statements that write to the tables of the audit log within a transaction.
type Writes struct{ in sqldb.Statements }

// NewWrites returns Writes whose statements run on in.
func NewWrites(in sqldb.Statements) Writes { return Writes{in} }

// AuditLog is the audit log of an open database. It implements audit.Store and audit.Reader.
type AuditLog struct {
	db    *sqldb.DB
	reads Reads
	kind  kind
	opts  Options

	insertRows, insertBlockKeys, insertUses sqldb.Insert

	claimed atomic.Bool                            // SQLite: the only chain has a writer
	journal atomic.Pointer[journaled]              // SQLite: the journal of that chain
	tail    atomic.Pointer[[]keyserver.AuditEntry] // read-only: rows only in a journal at the last AuditSnapshot
}

// Options are the settings of the audit log of an embedded database.
type Options struct {
	Journal journal.Options // only tests change the defaults
	// Discard is called when a rejected journal is discarded. If Discard is nil, the database cannot be opened with a
	// rejected journal.
	Discard func()
	// Copied is set if this database is a copy of another database. Copied contains the rows in the journal of the
	// original.
	Copied *[]keyserver.AuditEntry
}

// kind has the operations that differ between SQLite and PostgreSQL.
type kind interface {
	// claimChain claims the lowest free audit chain.
	claimChain(ctx context.Context) (audit.Chain, error)
	// recoverRows writes to the tables the rows that an earlier process left in its journal.
	recoverRows(ctx context.Context) error
	// unfilled returns the rows that another process has written only to its journal, and the state of the audit log
	// with these rows.
	unfilled(ctx context.Context) (audit.Snapshot, []keyserver.AuditEntry, error)
	// sweep deletes some of the rows before the row first, and reports whether there are more. On PostgreSQL, it also
	// creates partitions in advance.
	sweep(ctx context.Context, first int64) (more bool, err error)
	// noteBlock stores a block of rows with its keys. On an error, the block is not stored.
	noteBlock(ctx context.Context, block int64, keys []keyInBlock, content blockContent) error
}

type embedded struct {
	*AuditLog
	d *sqlite.Database
}

type shared struct {
	*AuditLog
	d *postgres.Database
}

// New returns the audit log of a database.
func New(db *sqldb.DB, o Options) *AuditLog {
	d := db.Dialect()
	t := &AuditLog{
		db: db, reads: NewReads(db.Statements), opts: o,
		insertRows:      sqldb.NewInsert(d, `INSERT INTO audit (`+auditColumns+`)`, 22),
		insertBlockKeys: sqldb.NewInsert(d, `INSERT INTO audit_block_keys (block, kind, key, first_row, last_row)`, 5),
		insertUses: sqldb.NewInsert(d, `INSERT INTO key_uses (key_id, uses, last_used_at)`, 3,
			`ON CONFLICT (key_id) DO UPDATE SET uses = key_uses.uses + excluded.uses, last_used_at = excluded.last_used_at`),
	}
	switch d := d.(type) {
	case *sqlite.Database:
		t.kind = embedded{t, d}
	case *postgres.Database:
		t.kind = shared{t, d}
	default:
		panic(fmt.Sprintf("%T cannot store an audit log", d))
	}
	db.Attach(sqldb.Backlog{Trouble: t.trouble, Release: t.release})
	return t
}

// Recover writes to the tables the rows that an earlier process left in its journal, because
// that process was not stopped properly.
func (t *AuditLog) Recover(ctx context.Context) error { return t.kind.recoverRows(ctx) }

// trouble returns the error of the last attempt to fill the tables, or nil.
func (t *AuditLog) trouble() error {
	if j := t.journal.Load(); j != nil {
		return j.trouble()
	}
	return nil
}

func (t *AuditLog) release() error {
	if j := t.journal.Load(); j != nil {
		return j.Release()
	}
	return nil
}
