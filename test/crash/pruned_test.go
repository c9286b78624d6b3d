package crash

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/archive"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// begin is the number of the first row in the database of TestPrunedTrail.
const begin = archive.Rows + 1

// TestPrunedTrail has a log whose first rows are only in an archive. It is verified from both sides
// and read to its beginning, and any tampering is found or reported.
func TestPrunedTrail(t *testing.T) {
	for name, where := range map[string]func(*testing.T) site{"sqlite": onSQLite, "postgres": onPostgreSQL} {
		t.Run(name, func(t *testing.T) { prunedTrail(t, where(t)) })
	}
}

func prunedTrail(t *testing.T, s site) {
	server := s.serve(t)
	admin := server.Admin(t, program.NoRetries)
	key, err := admin.GetAuditKey(t.Context())
	rig.Must(t, err)
	with := []string{"--key", key.Key}
	noted := func(size int64) {
		text := grownTo(t, server.Admin(t, program.NoRetries), size)
		file := filepath.Join(t.TempDir(), "checkpoint")
		rig.Must(t, os.WriteFile(file, text, 0o600))
		with = append(with, "--checkpoint", file)
	}
	noted(begin % 100) // before the first row
	rig.Must(t, server.Stop())
	end := s.longTrail(t, archive.Rows)
	server = s.serve(t)
	sweeps := s.noSweep(t) // the server would remove rows that the test marks as archived
	noted(end + 40)

	here := append(append([]string{"audit", "verify", "--data-dir", s.dir}, s.state...), with...)
	there := append([]string{
		"audit", "verify", "--server", "https://" + server.Address, "--ca-file", filepath.Join(s.dir, "ca.crt"), "--password-file", filepath.Join(s.dir, "bootstrap-password"),
	}, with...)
	// The test removes rows as retention does, at the start of a segment and elsewhere.
	for _, first := range []int{1000, begin} {
		s.exec(t, fmt.Sprintf(`INSERT INTO audit_cuts (chain, position, head) SELECT chain, position, hash FROM audit a WHERE seq < %[1]d
			AND NOT EXISTS (SELECT 1 FROM audit b WHERE b.chain = a.chain AND b.seq > a.seq AND b.seq < %[1]d)`, first))
		s.exec(t, fmt.Sprintf(`UPDATE audit_extent SET first = %[1]d, archived = %[1]d - 1`, first))
		for _, run := range []func() (string, error){
			func() (string, error) { return binary.Run(here...) },
			func() (string, error) { return binary.Named("keyserverctl").Run(there...) },
		} {
			out, err := run()
			if want := fmt.Sprintf("tree, seq %d: removed: row %[1]d is recorded as the first one", first); err == nil || !strings.HasPrefix(out, want) {
				t.Errorf("%v\n%s\nwant %s", err, out, want)
			}
		}
		s.exec(t, `UPDATE audit_extent SET first = 1, archived = 0`)
		s.exec(t, `DELETE FROM audit_cuts`)
	}
	rig.Must(t, server.Stop())
	sweeps()

	kept := s.args
	s.args = append(slices.Clone(kept), "--audit-archive", "file://"+t.TempDir(), "--audit-retention", "1h")
	server = s.serve(t)
	s.await(t, server, func(store *sqlstore.Store) bool {
		e, err := store.AuditExtent(t.Context())
		return err == nil && e.First == begin
	})
	intact(t, here)
	rig.Must(t, server.Stop())
	intact(t, here)
	s.args = kept
	server = s.serve(t)
	defer server.Kill()
	s.noSweep(t)
	there = append(there, "--server", "https://"+server.Address)
	intact(t, there)
	newestFirst(t, server.Admin(t, program.NoRetries))

	for _, tamper := range []struct {
		change, undo string
		here, there  string // expected finding here and there
	}{
		{
			change: fmt.Sprintf(`UPDATE audit SET reason = 'changed' WHERE seq = %d`, begin+3),
			undo:   fmt.Sprintf(`UPDATE audit SET reason = '' WHERE seq = %d`, begin+3),
			here:   fmt.Sprintf("tree, seq %d: changed", begin+3), there: fmt.Sprintf("tree, seq %d: changed", begin+3),
		},
		{
			change: `UPDATE audit_extent SET first = first - 5`, undo: `UPDATE audit_extent SET first = first + 5`,
			here:  fmt.Sprintf("row %d is recorded as the first one, but no segment of an archive begins there", begin-5),
			there: fmt.Sprintf("row %d is recorded as the first one, but no segment of an archive begins there", begin-5),
		},
		{ // The database claims that existing rows are archived.
			change: `UPDATE audit_extent SET first = first + 5`, undo: `UPDATE audit_extent SET first = first - 5`,
			here:  fmt.Sprintf("row %d is recorded as the first one, and row %d as the last one in the archive", begin+5, begin-1),
			there: fmt.Sprintf("row %d is recorded as the first one, but no segment of an archive begins there", begin+5),
		},
		{ // The archive is declared to have them, too. Rows and the record of the removal form a hash chain.
			change: `UPDATE audit_extent SET first = first + 5, archived = archived + 5`, undo: `UPDATE audit_extent SET first = first - 5, archived = archived - 5`,
			here: "missing: the rows at positions", there: fmt.Sprintf("row %d is recorded as the first one, but no segment of an archive begins there", begin+5),
		},
	} {
		s.exec(t, tamper.change)
		for _, look := range []struct {
			args []string
			want string
		}{{here, tamper.here}, {there, tamper.there}} {
			out, err := binary.Run(look.args...)
			if err == nil || !strings.Contains(out+err.Error(), look.want) {
				t.Errorf("%s: %v\n%s\nwant %q", tamper.change, err, out, look.want)
			}
		}
		s.exec(t, tamper.undo)
	}
	intact(t, here)
	intact(t, there)
}

func intact(t *testing.T, verify []string) {
	t.Helper()
	out, err := binary.Run(verify...)
	if err != nil || !strings.HasPrefix(out, "audit log intact") || strings.Count(out, "continues ") != 2 ||
		!strings.Contains(out, fmt.Sprintf("It begins at row %d. The rows before it are in the audit archive", begin)) {
		t.Errorf("%v\n%s", err, out)
	}
}

// grownTo writes rows until a checkpoint has this size.
func grownTo(t *testing.T, admin *client.Client, size int64) (checkpoint []byte) {
	t.Helper()
	for {
		page, err := admin.ListAuditEntries(t.Context(), schema.AuditQuery{Order: new("desc")})
		rig.Must(t, err)
		newest := page.Entries[0].Seq
		if newest >= size {
			_, err := admin.GetAuditReceipt(t.Context(), schema.ByRow{Seq: schema.RowNumber(newest)}) // waits until the tree has it
			rig.Must(t, err)
			text, err := admin.GetAuditCheckpoint(t.Context())
			rig.Must(t, err)
			return []byte(text)
		}
		_, err = admin.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "AES-256"})
		rig.Must(t, err)
	}
}

func (s site) open(t *testing.T) *sql.DB {
	t.Helper()
	driver, source := "sqlite", "file:"+filepath.Join(s.dir, sqlite.DatabaseFile)+"?_busy_timeout=5000"
	if s.state != nil {
		driver, source = "pgx", s.state[1]
	}
	db, err := sql.Open(driver, source)
	rig.Must(t, err)
	return db
}

func (s site) exec(t *testing.T, text string) {
	t.Helper()
	db := s.open(t)
	defer db.Close()
	_, err := db.ExecContext(t.Context(), text)
	rig.Must(t, err)
}

// noSweep prevents running servers from removing rows of the log until again is called. Until then no server can start,
// because the schema is changed.
func (s site) noSweep(t *testing.T) (again func()) {
	t.Helper()
	if s.state != nil {
		s.exec(t, `CREATE FUNCTION pass_over() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$`)
		s.exec(t, `CREATE TRIGGER nobody BEFORE UPDATE ON leases FOR EACH ROW WHEN (NEW.name = 'auditArchive') EXECUTE FUNCTION pass_over()`)
		return func() { s.exec(t, `DROP FUNCTION pass_over CASCADE`) }
	}
	tables := []string{"audit", "audit_blocks", "audit_block_keys"}
	for _, table := range tables {
		s.exec(t, fmt.Sprintf(`CREATE TRIGGER keep_%[1]s BEFORE DELETE ON %[1]s BEGIN SELECT RAISE(IGNORE); END`, table))
	}
	return func() {
		for _, table := range tables {
			s.exec(t, `DROP TRIGGER keep_`+table)
		}
	}
}

// newestFirst reads the log backwards to the first row in the database, where the server reports the end. It rejects a
// cursor below that row.
func newestFirst(t *testing.T, admin *client.Client) {
	t.Helper()
	for _, filter := range []schema.AuditQuery{{}, {Operation: "createKey"}} {
		filter.Order, filter.Limit = new("desc"), new(700)
		var seqs []int64
		for more := true; more; {
			page, err := admin.ListAuditEntries(t.Context(), filter)
			rig.Must(t, err)
			if page.ArchivedBefore == nil || *page.ArchivedBefore != begin {
				t.Fatalf("the rows before %v are said to be archived", page.ArchivedBefore)
			}
			for _, e := range page.Entries {
				seqs = append(seqs, e.Seq)
			}
			if more = page.Next != nil; more {
				filter.Cursor = *page.Next
			}
		}
		if !slices.IsSortedFunc(seqs, func(a, b int64) int { return int(b - a) }) || len(seqs) < 8 || filter.Operation == "" && seqs[len(seqs)-1] != begin {
			t.Errorf("%q: %d", filter.Operation, seqs)
		}
		for cursor, refused := range map[int64]bool{begin + 1: false, begin: true, begin - 1: true, 1: true} {
			filter.Cursor = cursor
			page, err := admin.ListAuditEntries(t.Context(), filter)
			var e *client.Error
			switch {
			case refused && (!client.IsCode(err, "ARCHIVED") || !errors.As(err, &e) || !strings.Contains(err.Error(), "audit show --archive")):
				t.Errorf("before %d: %v", cursor, err)
			case !refused && (err != nil || page.Next != nil):
				t.Errorf("before %d: %v, %v", cursor, page.Next, err)
			}
		}
	}
}
