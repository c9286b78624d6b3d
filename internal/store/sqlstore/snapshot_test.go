package sqlstore_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/snapshot"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/pgcopy"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

type copied struct {
	*snapshot.Snapshot
	rows map[string][]byte
}

func copyOf(t *testing.T, s *sqlstore.Store) copied {
	t.Helper()
	snapshot, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := snapshot.Close(); err != nil {
			t.Error(err)
		}
	}()
	c := copied{snapshot, map[string][]byte{}}
	for _, table := range snapshot.Tables {
		var b bytes.Buffer
		if _, err := snapshot.Copy(t.Context(), table, &b); err != nil {
			t.Fatal(err)
		}
		c.rows[table.Name] = b.Bytes()
	}
	return c
}

var restoreRow = keyserver.AuditEntry{Operation: keyserver.AuditRestored, Outcome: keyserver.Allowed, Kind: keyserver.InternalSession, Principal: keyserver.PrincipalRef{System: 1}}

func (c copied) load(t *testing.T, r *sqlstore.Restore) error {
	t.Helper()
	for _, table := range c.Tables {
		if _, err := r.Load(t.Context(), table, bytes.NewReader(c.rows[table.Name]), c.Last); err != nil {
			return err
		}
	}
	return r.CommitLoad(t.Context(), c.Tail)
}

func (c copied) restore(t *testing.T, cfg sqlstore.Config) {
	t.Helper()
	r, err := sqlstore.NewRestore(t.Context(), cfg, c.Schema)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.load(t, r); err != nil {
		t.Fatal(err)
	}
	if err := r.Finish(t.Context(), restoreRow); err != nil {
		t.Fatal(err)
	}
}

// content returns all rows of a copy as texts, which are the same for SQLite and PostgreSQL.
func (c copied) content(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, table := range c.Tables {
		types := []pgcopy.Type{}
		for _, column := range table.Columns {
			types = append(types, column.Type)
		}
		rows := []string{}
		r := pgcopy.NewReader(bytes.NewReader(c.rows[table.Name]), types)
		for row, err := r.Next(); err == nil; row, err = r.Next() {
			fields := []string{}
			for i, value := range row {
				fields = append(fields, fmt.Sprintf("%s=%v", table.Columns[i].Name, value))
			}
			slices.Sort(fields)
			rows = append(rows, strings.Join(fields, " "))
		}
		slices.Sort(rows)
		all[table.Name] = rows
	}
	return all
}

func eachWay(t *testing.T, test func(t *testing.T, from, to newDatabase)) {
	for source, from := range kinds {
		for target, to := range kinds {
			t.Run(source+" to "+target, func(t *testing.T) { test(t, from, to) })
		}
	}
}

func TestSnapshotIsRestoredIntoEitherKind(t *testing.T) {
	eachWay(t, func(t *testing.T, from, to newDatabase) {
		s := from(t).open(t)
		defer s.Close()
		populate(t, s)
		w, err := audit.NewWriter(t.Context(), s, audit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		for range 50 {
			if err := w.Write(t.Context(), usedRow()); err != nil {
				t.Fatal(err)
			}
		}
		if first, err := s.UseProof(t.Context(), sqlstore.UsedProof{Digest: [32]byte{1}, Until: time.Unix(1e9, 0)}); err != nil || !first {
			t.Fatal(first, err)
		}
		before := copyOf(t, s)
		target := to(t)
		before.restore(t, target.config)

		restored := target.open(t)
		defer restored.Close()
		if found := findings(t, restored); len(found) > 0 {
			t.Errorf("rows that do not agree with their MACs: %v", found)
		}
		report, err := audit.Verify(t.Context(), restored)
		if err != nil || report.Total > 0 || report.Rows != before.Last+1 {
			t.Errorf("the trail: %d rows after %d, %v, %v", report.Rows, before.Last, report.Findings, err)
		}
		after := copyOf(t, restored)
		was, is := before.content(t), after.content(t)
		// Skip tables that a restore changes, and tables with rows from the journal.
		for _, name := range []string{"sessions", "changes", "sequences", "audit", "audit_chains", "leases", "key_uses"} {
			if len(is[name]) > 0 && name == "sessions" {
				t.Errorf("sessions are still open: %v", is[name])
			}
			delete(was, name)
			delete(is, name)
		}
		if diff := cmp.Diff(was, is); diff != "" {
			t.Error(diff)
		}
		if len(was["used_proofs"]) == 0 || len(was["stored_keys"]) == 0 || len(was["settings"]) == 0 {
			t.Error("there was nothing to compare")
		}
	})
}

// A snapshot has the rows that are only in the journal, and the uses of keys in these rows.
func TestSnapshotHasWhatOnlyTheJournalHas(t *testing.T) {
	s := inDirectory(t).open(t)
	defer s.Close()
	w, err := audit.NewWriter(t.Context(), s, audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			if err := w.Write(t.Context(), usedRow()); err != nil {
				ended <- err
				return
			}
		}
	}()
	tails := 0
	for range 10 {
		c := copyOf(t, s)
		tails += len(c.Tail)
		target := inDirectory(t)
		c.restore(t, target.config)
		restored := target.open(t)
		report, err := audit.Verify(t.Context(), restored)
		if err != nil || report.Total > 0 || report.Rows != c.Last+1 {
			t.Errorf("%d rows after %d, %v, %v", report.Rows, c.Last, report.Findings, err)
		}
		uses, err := restored.KeyUses(t.Context(), []keyserver.ID{usedRow().UsedKey})
		if err != nil || uses[usedRow().UsedKey].Uses != c.Last {
			t.Errorf("%d uses of %d are counted, %v", uses[usedRow().UsedKey].Uses, c.Last, err)
		}
		if err := restored.Close(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if tails == 0 {
		t.Error("no row was in the journal alone")
	}
}

func TestSnapshotsAreOneAtATime(t *testing.T) {
	for kind, make := range kinds {
		t.Run(kind, func(t *testing.T) {
			d := make(t)
			s := d.open(t)
			defer s.Close()
			beside := s
			if s.Shared() {
				beside = d.open(t)
				defer beside.Close()
			}
			first, err := s.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := beside.Snapshot(t.Context()); fault.CodeOf(err) != fault.Overloaded {
				t.Errorf("a second one: %v", err)
			}
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			again, err := beside.Snapshot(t.Context())
			rig.Soon(t, "the database has released the lock of the closed connection", func() bool {
				if fault.CodeOf(err) == fault.Overloaded {
					again, err = beside.Snapshot(t.Context())
				}
				return fault.CodeOf(err) != fault.Overloaded
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := again.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestRestoreRefusesWhatIsThere(t *testing.T) {
	for kind, make := range kinds {
		t.Run(kind, func(t *testing.T) {
			d := make(t)
			s := d.open(t)
			c := copyOf(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := sqlstore.NewRestore(t.Context(), d.config, c.Schema); !errors.Is(err, sqlstore.ErrUnusable) {
				t.Errorf("over a database of a key server: %v", err)
			}
			if _, err := sqlstore.NewRestore(t.Context(), make(t).config, c.Schema+1); !errors.Is(err, sqlstore.ErrNewerVersion) {
				t.Errorf("of a version that comes: %v", err)
			}
			again := d.open(t) // the database still opens
			if err := again.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("another file", func(t *testing.T) {
		d := inDirectory(t)
		if err := os.WriteFile(filepath.Join(d.config.Dir, "notes"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := sqlstore.NewRestore(t.Context(), d.config, 1); !errors.Is(err, sqlstore.ErrUnusable) {
			t.Error(err)
		}
	})
	t.Run("another table", func(t *testing.T) {
		d := onServer(t)
		d.tamper(t, `CREATE TABLE notes (note TEXT)`)
		if _, err := sqlstore.NewRestore(t.Context(), d.config, 1); !errors.Is(err, sqlstore.ErrUnusable) {
			t.Error(err)
		}
	})
}

// No program accepts the result of a killed restore as a database. The next restore starts
// again.
func TestAnInterruptedRestoreLooksLikeNothing(t *testing.T) {
	for kind, make := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := make(t).open(t)
			defer s.Close()
			populate(t, s)
			c := copyOf(t, s)
			d := make(t)
			r, err := sqlstore.NewRestore(t.Context(), d.config, c.Schema)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.load(t, r); err != nil {
				t.Fatal(err)
			}
			if err := r.Store().Close(); err != nil { // as if the process was killed
				t.Fatal(err)
			}
			if _, err := sqlstore.Open(t.Context(), d.config); !errors.Is(err, sqlstore.ErrUnusable) && !errors.Is(err, sqlstore.ErrForeign) {
				t.Errorf("it is served from: %v", err)
			}
			c.restore(t, d.config)
			if found := findings(t, d.open(t)); len(found) > 0 {
				t.Error(found)
			}
		})
	}
}

func TestAnAbandonedRestoreLeavesNothing(t *testing.T) {
	for kind, make := range kinds {
		t.Run(kind, func(t *testing.T) {
			d := make(t)
			r, err := sqlstore.NewRestore(t.Context(), d.config, 30)
			if err != nil {
				t.Fatal(err)
			}
			tables, err := r.Tables(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Load(t.Context(), tables["audit"], strings.NewReader("damaged"), 1); !errors.Is(err, pgcopy.ErrDamaged) {
				t.Errorf("damaged rows: %v", err)
			}
			if err := r.Abandon(); err != nil {
				t.Error(err)
			}
			if d.config.Dir != "" {
				if left, err := os.ReadDir(d.config.Dir); err != nil || len(left) > 0 {
					t.Errorf("%v is left, %v", left, err)
				}
				return
			}
			db, err := sql.Open(d.driver, d.source)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			var left int
			if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace`).Scan(&left); err != nil || left > 0 {
				t.Errorf("%d tables are left, %v", left, err)
			}
		})
	}
}
