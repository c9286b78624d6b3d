package sqlstore_test

import (
	"database/sql"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func (d database) query(t *testing.T, text string) (out []string) {
	t.Helper()
	db, err := sql.Open(d.driver, d.source)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func appendRows(t *testing.T, s audit.Store, n int) {
	t.Helper()
	w, err := audit.NewWriter(t.Context(), s, audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteAll(t.Context(), slices.Repeat([]keyserver.AuditEntry{{Operation: "hmacData", Outcome: keyserver.Allowed}}, n)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

const partitionsOfAudit = `SELECT relname FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid WHERE inhparent = 'audit'::regclass ORDER BY 1`

// TestTheTrailBecomesPartitions checks that the migration makes an older table the first
// partition, and keeps its rows and unknown indexes.
func TestTheTrailBecomesPartitions(t *testing.T) {
	d := onServer(t)
	s := d.open(t)
	appendRows(t, s, 5)
	closeStore(t, s)
	d.tamper(t, `CREATE TABLE older (LIKE audit INCLUDING DEFAULTS)`, `INSERT INTO older SELECT * FROM audit`, `DROP TABLE audit`, //nolint:unqueryvet // a copy of all of it
		`ALTER TABLE older RENAME TO audit`, `ALTER TABLE audit ADD PRIMARY KEY (seq)`,
		`CREATE INDEX audit_by_reason ON audit (reason, seq) WHERE reason <> ''`, `CREATE INDEX audit_by_later ON audit (substr(object, 1, 16) COLLATE "C", seq)`,
		`DROP TABLE audit_extent, audit_cuts`, `DELETE FROM leases WHERE name = 'auditArchive'`)
	table := d.query(t, `SELECT oid::text FROM pg_class WHERE relname = 'audit'`)[0]
	index := d.query(t, `SELECT oid::text FROM pg_class WHERE relname = 'audit_by_later'`)[0]

	migration, err := os.ReadFile("migrations/postgres/00030_auditarchive.sql")
	if err != nil {
		t.Fatal(err)
	}
	d.tamper(t, string(migration))
	s = d.open(t)
	defer closeStore(t, s)
	const first = "audit_until_00000000000001048576"
	if got := d.query(t, partitionsOfAudit); len(got) != 6 || got[0] != "audit_default" || got[1] != first {
		t.Fatalf("%q", got)
	}
	if got := d.query(t, `SELECT oid::text FROM pg_class WHERE relname = '`+first+`'`); got[0] != table {
		t.Error("the rows were copied")
	}
	if got := d.query(t, `SELECT c.relname FROM pg_inherits JOIN pg_class c ON c.oid = inhparent WHERE inhrelid = `+index); len(got) != 1 || got[0] != "audit_by_later" {
		t.Errorf("the index was not taken over: %q", got)
	}
	if got := d.query(t, `SELECT count(*)::text FROM pg_index WHERE indrelid = (SELECT oid FROM pg_class WHERE relname = 'audit_default')`); got[0] != "3" {
		t.Errorf("a later partition has %q indexes, want 3", got)
	}
	appendRows(t, s, 5)
	if report, err := audit.Verify(t.Context(), s); err != nil || !report.Intact() || report.Rows != 10 {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestPartitionsComeAndGo checks that partitions are created in advance and dropped after
// they are archived, and that rows without a partition can be read.
func TestPartitionsComeAndGo(t *testing.T) {
	d := onServer(t)
	s := d.open(t)
	defer closeStore(t, s)
	appendRows(t, s, 1)
	sweep := func() {
		t.Helper()
		for {
			more, err := s.SweepAudit(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !more {
				return
			}
		}
	}
	count := func(want int) {
		t.Helper()
		if got := d.query(t, partitionsOfAudit); len(got) != want {
			t.Errorf("%d partitions, want %d: %q", len(got), want, got)
		}
	}
	sweep()
	count(6)
	// The numbers skip 9 million. So 7 rows are written after the last partition.
	d.tamper(t, fmt.Sprintf(`UPDATE sequences SET value = %d WHERE name = 'audit'`, 9<<20))
	appendRows(t, s, 7)
	if got := d.query(t, `SELECT count(*)::text FROM audit_default`); got[0] != "7" {
		t.Fatalf("%q", got)
	}
	sweep()
	// Partitions 1 to 5, and 10 to 14: 9<<20+1 belongs to the tenth, whose rows are in the
	// default partition.
	count(1 + 5 + 4)
	rows, err := s.AuditRange(t.Context(), 9<<20, 9<<20+7, 10)
	if err != nil || len(rows) != 7 {
		t.Errorf("%d, %v", len(rows), err)
	}
	if err := s.Archived(t.Context(), 9<<20+3); err != nil {
		t.Fatal(err)
	}
	if err := s.PruneAudit(t.Context(), 9<<20+3, nil); err != nil {
		t.Fatal(err)
	}
	sweep()
	count(1 + 4)
	if got := d.query(t, `SELECT count(*)::text FROM audit`); got[0] != "4" {
		t.Errorf("%q rows are left, want 4", got)
	}

	// A long transaction and the sweep do not wait for each other.
	db, err := sql.Open(d.driver, d.source)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := tx.QueryRowContext(t.Context(), `SELECT count(*) FROM audit`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	d.tamper(t, fmt.Sprintf(`UPDATE audit_extent SET first = %d, archived = %[1]d`, 12<<20))
	sweep()
	count(1 + 4)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	sweep()
	if got := d.query(t, `SELECT count(*)::text FROM audit`); got[0] != "0" {
		t.Errorf("%q rows are left", got)
	}
}

// TestOnlyWhatIsArchivedIsPruned checks that PruneAudit removes no row that is not archived.
func TestOnlyWhatIsArchivedIsPruned(t *testing.T) {
	for name, place := range map[string]newDatabase{"sqlite": inDirectory, "postgres": onServer} {
		t.Run(name, func(t *testing.T) {
			d := place(t)
			s := d.open(t)
			defer closeStore(t, s)
			appendRows(t, s, 20)
			if err := s.Archived(t.Context(), 10); err != nil {
				t.Fatal(err)
			}
			if err := s.PruneAudit(t.Context(), 11, nil); err != nil {
				t.Fatal(err)
			}
			if e, err := s.AuditExtent(t.Context()); err != nil || e != (audit.Extent{First: 1, Archived: 10}) {
				t.Errorf("%+v, %v", e, err)
			}
			if _, err := s.SweepAudit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if rows, err := s.AuditRange(t.Context(), 0, 20, 100); err != nil || len(rows) != 20 {
				t.Errorf("%d, %v", len(rows), err)
			}
		})
	}
}
