package snapshot

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/auditrows"
	"github.com/keyserver-operator/keyserver-operator/internal/store/postgres"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/pgcopy"
)

// journalTable is not copied, because a restored database starts without a journal.
const journalTable = "audit_journal"

// Table describes a table of a copy.
type Table struct {
	Name    string   `json:"name"`
	Columns []Column `json:"columns"`
}

// Column is a column of a table.
type Column struct {
	Name string      `json:"name"`
	Type pgcopy.Type `json:"type"`
}

func (t Table) types() []pgcopy.Type {
	types := make([]pgcopy.Type, len(t.Columns))
	for i, c := range t.Columns {
		types[i] = c.Type
	}
	return types
}

func (t Table) columns() string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = c.Name
	}
	return strings.Join(names, ", ")
}

// Snapshot is the state of a database at one time. Later writes do not change it.
type Snapshot struct {
	Schema int64   // the version of the schema
	Tables []Table // each one after the tables to which it refers
	Tree   audit.TreeHead
	Extent audit.Extent
	// Last is the last row of the audit log. Tail contains the rows at the end that are durable in the journal of an
	// embedded database, but in no table yet.
	Last int64
	Tail []keyserver.AuditEntry

	view view
}

// view reads the state of the database at one time.
type view interface {
	reader() sqldb.Statements
	// tables lists the tables, each one after the tables to which it refers.
	tables(ctx context.Context) ([]Table, error)
	copy(ctx context.Context, t Table, order string, to io.Writer) (rows int64, err error)
	// bytewise returns an ORDER BY term that sorts a column by bytes or numbers, NULL first.
	bytewise(c Column) string
	close() error
}

// viewTx is the transaction of a view, on its own connection.
type viewTx struct {
	dialect sqldb.Dialect
	of      *Source
	db      sqldb.Pool
	conn    *sql.Conn
}

func (r *viewTx) reader() sqldb.Statements {
	return sqldb.Statements{Run: r.conn, Dialect: r.dialect}
}

func (r *viewTx) tables(ctx context.Context) ([]Table, error) {
	return r.of.tables.columns(ctx, r.reader())
}

// copyPause is the time after which a caller may retry.
const copyPause = 10 * time.Second

// errCopying returns the error of a second copy at the same time. Only one copy is allowed, because the database cannot
// delete old row versions during a copy.
func errCopying() error {
	return fault.Temporary(fault.Overloaded, fault.ScopeProcess, copyPause, "another backup of this database is being made; try again when it is done")
}

// Source makes snapshots of an open database.
type Source struct {
	db      *sqldb.DB
	trail   *auditrows.AuditLog
	tables  tables
	copying atomic.Bool // SQLite: a Snapshot is open
}

// NewSource returns a Source for a database and its audit log.
func NewSource(db *sqldb.DB, trail *auditrows.AuditLog) *Source {
	return &Source{db: db, trail: trail, tables: tablesOf(db.Dialect())}
}

// tables has the operations that differ between SQLite and PostgreSQL.
type tables interface {
	// view returns a view of the current state of the database.
	view(ctx context.Context, of *Source) (view, error)
	// columns lists the tables with their columns.
	columns(ctx context.Context, in sqldb.Statements) ([]Table, error)
	// ready prepares the table of the audit log for rows up to last.
	ready(ctx context.Context, in sqldb.Statements, last int64) error
	// load inserts the rows of a table, in the transaction of the connection on.
	load(ctx context.Context, on *sql.Conn, t Table, rows *pgcopy.Reader) error
}

func tablesOf(d sqldb.Dialect) tables {
	switch d := d.(type) {
	case *sqlite.Database:
		return sqliteTables{d}
	case *postgres.Database:
		return postgresTables{d}
	}
	panic(fmt.Sprintf("the tables of %T cannot be copied", d))
}

// snapshotTries is the maximum number of attempts. After errFilled, another attempt begins.
const snapshotTries = 50

// Snapshot begins a copy of the database. Only one copy exists at a time, on all replicas; a second call returns
// OVERLOADED. The caller has to close the Snapshot.
//
// The copy contains all writes that were acknowledged before the call. It also contains the audit row of each write in
// the copy, because the row is durable before the write.
func (s *Source) Snapshot(ctx context.Context) (*Snapshot, error) {
	for range snapshotTries {
		snapshot, err := s.snapshot(ctx)
		if !errors.Is(err, errFilled) {
			return snapshot, err
		}
	}
	return nil, sqldb.Unavailable(errFilled)
}

// errFilled ends an attempt. Rows were written from the journal to the tables after the tables
// were read and before the journal was read, so both reads missed them.
var errFilled = errors.New("the audit tables are filled too fast to be copied")

func (s *Source) snapshot(ctx context.Context) (_ *Snapshot, err error) {
	if err := s.trail.Settled(ctx); err != nil {
		return nil, err
	}
	v, err := s.tables.view(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, v.close())
		}
	}()
	c := &Snapshot{view: v}
	in := v.reader()
	if err := in.Row(ctx, `SELECT max(version_id) FROM `+s.db.Dialect().VersionTable(), nil, &c.Schema); err != nil {
		return nil, err
	}
	if err := in.Row(ctx, `SELECT value FROM sequences WHERE name = 'audit'`, nil, &c.Last); err != nil {
		return nil, err
	}
	rows := auditrows.NewReads(in)
	if c.Tree, err = rows.AuditTree(ctx); err != nil {
		return nil, err
	}
	if c.Extent, err = rows.AuditExtent(ctx); err != nil {
		return nil, err
	}
	var complete bool
	if c.Tail, complete = s.trail.RowsAfter(c.Last); !complete {
		return nil, errFilled
	}
	c.Last += int64(len(c.Tail))
	if c.Tables, err = v.tables(ctx); err != nil {
		return nil, err
	}
	c.Tables = slices.DeleteFunc(c.Tables, func(t Table) bool { return t.Name == journalTable || t.Name == s.db.Dialect().VersionTable() })
	return c, nil
}

// copyOrder is the order of the rows of large tables. It is the order of their primary keys, so a restore is fast.
var copyOrder = map[string]string{"audit": "seq", "audit_block_keys": "block, kind, key", "audit_tiles": "level, place", "stored_keys": "id"}

// Copy writes the rows of a table in the format of package pgcopy. It returns their number.
func (c *Snapshot) Copy(ctx context.Context, t Table, to io.Writer) (int64, error) {
	return c.view.copy(ctx, t, copyOrder[t.Name], to)
}

// Sorted is Copy with an order of rows that is the same in SQLite and PostgreSQL.
func (c *Snapshot) Sorted(ctx context.Context, t Table, to io.Writer) (int64, error) {
	keys := strings.Split(copyOrder[t.Name], ", ")
	var order []string
	for _, column := range t.Columns {
		if keys[0] == "" || slices.Contains(keys, column.Name) {
			order = append(order, c.view.bytewise(column))
		}
	}
	return c.view.copy(ctx, t, strings.Join(order, ", "), to)
}

// Close ends the snapshot.
func (c *Snapshot) Close() error { return c.view.close() }

// catalogue has the queries that list the tables of a database.
type catalogue struct {
	columns string // query of table, column and declared type, in the order of the columns
	refers  string // query of each table with a table to which it refers
	types   map[string]pgcopy.Type
}

func (c catalogue) read(ctx context.Context, in sqldb.Statements) ([]Table, error) {
	found := map[string]Table{}
	err := in.Each(ctx, c.columns, nil, func(row sqldb.Scanner) error {
		var table, column, declared string
		if err := row.Scan(&table, &column, &declared); err != nil {
			return err
		}
		t := found[table]
		t.Name, t.Columns = table, append(t.Columns, Column{column, c.types[declared]})
		found[table] = t
		return nil
	})
	if err != nil {
		return nil, err
	}
	refers := map[string][]string{}
	err = in.Each(ctx, c.refers, nil, func(row sqldb.Scanner) error {
		var from, to string
		if err := row.Scan(&from, &to); err != nil {
			return err
		}
		refers[from] = append(refers[from], to)
		return nil
	})
	return sorted(found, refers), err
}

// sorted orders tables so that each one comes after the tables to which it refers, and otherwise
// by name.
func sorted(tables map[string]Table, refers map[string][]string) []Table {
	var all []Table
	placed := map[string]bool{}
	var place func(name string)
	place = func(name string) {
		t, known := tables[name]
		if !known || placed[name] {
			return
		}
		placed[name] = true // also ends a cycle
		for _, other := range refers[name] {
			place(other)
		}
		all = append(all, t)
	}
	names := make([]string, 0, len(tables))
	for name := range tables {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		slices.Sort(refers[name])
		place(name)
	}
	return all
}
