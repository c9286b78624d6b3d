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

// journalTable belongs to one embedded database and its journal. A restored database starts
// without a journal.
const journalTable = "audit_journal"

// Table is a table as it is copied.
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

// Snapshot is a database as it was at one moment. Later writes do not change it.
type Snapshot struct {
	Schema int64   // the version of the schema
	Tables []Table // each after those that it refers to
	Tree   audit.TreeHead
	Extent audit.Extent
	// Last is the last row of the audit log. Tail are the rows up to it that are durable in
	// the journal of an embedded database, but in no table yet.
	Last int64
	Tail []keyserver.AuditEntry

	view view
}

// view is a connection that sees one moment of the database.
type view interface {
	reader() sqldb.Statements
	// tables lists the tables; each one comes after those that it refers to.
	tables(ctx context.Context) ([]Table, error)
	copy(ctx context.Context, t Table, order string, to io.Writer) (rows int64, err error)
	// bytewise returns the ORDER BY term for the bytes or numbers of a column, NULL first.
	bytewise(c Column) string
	close() error
}

// reading is the transaction of a view, on a connection that nothing else uses.
type reading struct {
	dialect sqldb.Dialect
	of      *Source
	db      sqldb.Pool
	conn    *sql.Conn
}

func (r *reading) reader() sqldb.Statements {
	return sqldb.Statements{Run: r.conn, Dialect: r.dialect}
}

func (r *reading) tables(ctx context.Context) ([]Table, error) {
	return r.of.tables.columns(ctx, r.reader())
}

// copyPause is the time after which a caller may try again.
const copyPause = 10 * time.Second

// errCopying returns the refusal of a second copy. As long as a copy runs, the database cannot clean up the data that
// the copy sees.
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

// NewSource returns the source of snapshots of a database with this audit log.
func NewSource(db *sqldb.DB, trail *auditrows.AuditLog) *Source {
	return &Source{db: db, trail: trail, tables: tablesOf(db.Dialect())}
}

// tables has the differences between the databases.
type tables interface {
	// view opens a connection that sees the database as it is now.
	view(ctx context.Context, of *Source) (view, error)
	// columns lists the tables with their columns.
	columns(ctx context.Context, in sqldb.Statements) ([]Table, error)
	// ready makes room for audit rows up to last, which are loaded next.
	ready(ctx context.Context, in sqldb.Statements, last int64) error
	// load inserts the rows of a table, in the transaction of a connection.
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

// snapshotTries is the number of attempts to read tables and journal without a row between
// them.
const snapshotTries = 50

// Snapshot begins a copy of the database. Only one exists at a time, over all replicas; a
// second call returns OVERLOADED. The caller has to close it.
//
// It contains everything that was acknowledged before. Each effect has its row of the audit log, because the row is
// durable before the effect.
func (s *Source) Snapshot(ctx context.Context) (*Snapshot, error) {
	for range snapshotTries {
		snapshot, err := s.snapshot(ctx)
		if !errors.Is(err, errFilled) {
			return snapshot, err
		}
	}
	return nil, sqldb.Unavailable(errFilled)
}

// errFilled ends an attempt: rows moved from the journal to the tables between the reads of
// both, so that neither read saw them.
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

// copyOrder is the order of the rows of large tables. In this order a restore writes each row next to the previous one.
var copyOrder = map[string]string{"audit": "seq", "audit_block_keys": "block, kind, key", "audit_tiles": "level, place", "stored_keys": "id"}

// Copy writes the rows of a table (package pgcopy), and returns how many there are.
func (c *Snapshot) Copy(ctx context.Context, t Table, to io.Writer) (int64, error) {
	return c.view.copy(ctx, t, copyOrder[t.Name], to)
}

// Sorted is Copy in an order that is the same in every database.
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

// catalogue has the queries for the tables of a database.
type catalogue struct {
	columns string // table, column and declared type, in the order of the columns
	refers  string // table, and another one that it refers to
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

// sorted orders tables so that each comes after those that it refers to, and otherwise by
// name.
func sorted(tables map[string]Table, refers map[string][]string) []Table {
	var all []Table
	placed := map[string]bool{}
	var place func(name string)
	place = func(name string) {
		t, known := tables[name]
		if !known || placed[name] {
			return
		}
		placed[name] = true // also ends a circle
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
