package crash

import (
	"database/sql"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/archive"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestArchivingIsKilled kills a server during an object, between the objects of a segment, between
// the archiving and the removal, and during the removal. At each moment the archive and the
// database together have the complete log.
func TestArchivingIsKilled(t *testing.T) {
	for name, where := range map[string]func(*testing.T) site{"sqlite": onSQLite, "postgres": onPostgreSQL} {
		t.Run(name, func(t *testing.T) { archivingIsKilled(t, where(t)) })
	}
}

func archivingIsKilled(t *testing.T, s site) {
	rig.Must(t, s.serve(t).Stop())
	rows := s.longTrail(t, archive.Rows)
	grown := s.serve(t)
	s.await(t, grown, func(store *sqlstore.Store) bool {
		head, err := store.AuditTree(t.Context())
		return err == nil && head.Size >= rows
	})
	grown.Kill()

	dir := t.TempDir()
	first := filepath.Join(dir, audit.Segment(1))
	there := func(pattern string) bool {
		found, err := filepath.Glob(pattern)
		return err == nil && len(found) > 0
	}
	url := "file://" + dir
	s.args = append(slices.Clone(s.args), "--audit-archive", url, "--audit-retention", "1h")
	for _, kill := range []struct {
		moment string
		is     func(*sqlstore.Store) bool
	}{
		{"in the rows", func(*sqlstore.Store) bool { return there(first + ".rows.zst.*.new") }},
		{"before the manifest", func(*sqlstore.Store) bool { return there(first + ".rows.zst") }},
		{"behind the manifest", func(*sqlstore.Store) bool { return there(first + ".json") }},
		{"before the removal", func(store *sqlstore.Store) bool {
			e, err := store.AuditExtent(t.Context())
			return err == nil && e.First > 1
		}},
	} {
		server := s.serve(t)
		s.await(t, server, kill.is)
		server.Kill()
		s.freeLease(t)
		if strings.Contains(server.Log(), `"level":"ERROR"`) {
			t.Errorf("%s: %s", kill.moment, server.Log())
		}
		s.verifyTrail(t)
	}
	server := s.serve(t)
	s.await(t, server, func(store *sqlstore.Store) bool {
		old, err := store.AuditRange(t.Context(), archive.Rows, archive.Rows+1, 1)
		e, err2 := store.AuditExtent(t.Context())
		return err == nil && err2 == nil && len(old) == 1 && e.First == archive.Rows+1
	})
	rig.Must(t, server.Stop())
	s.verifyTrail(t)
	if out, err := binary.Run("audit", "verify", "--archive", url, "--key", s.auditKey(t)); err != nil || !strings.HasPrefix(out, "audit archive intact: rows 1 to 65536 in 1 segments") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := binary.Run("audit", "show", "--archive", url, "--from", "65000", "--to", "65001"); err != nil || strings.Count(out, `"operation":"hmacData"`) != 2 {
		t.Errorf("%v\n%s", err, out)
	}
}

// longTrail writes at least this many old rows while no server runs, and returns the number of the last row.
func (s site) longTrail(t *testing.T, rows int) int64 {
	t.Helper()
	store, err := sqlstore.Open(t.Context(), s.store())
	rig.Must(t, err)
	w, err := audit.NewWriter(t.Context(), store, audit.Options{Batch: 4096, Clock: func() time.Time { return time.Now().Add(-48 * time.Hour) }})
	rig.Must(t, err)
	for range rows/4096 + 1 {
		rig.Must(t, w.WriteAll(t.Context(), slices.Repeat([]keyserver.AuditEntry{{Operation: "hmacData", Outcome: keyserver.Allowed}}, 4096)))
	}
	rig.Must(t, w.Close())
	end, err := store.AuditEnd(t.Context())
	rig.Must(t, err)
	rig.Must(t, store.Close())
	return end
}

func (s site) store() sqlstore.Config {
	if s.state == nil {
		return sqlstore.Config{Dir: s.dir}
	}
	return sqlstore.Config{URL: s.state[1]}
}

// await polls the database while a server runs, until is returns true.
func (s site) await(t *testing.T, server *program.Server, is func(*sqlstore.Store) bool) {
	t.Helper()
	store, err := sqlstore.OpenReadOnly(t.Context(), s.store())
	rig.Must(t, err)
	defer store.Close()
	for deadline := time.Now().Add(3 * time.Minute); !is(store); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not come to that:\n%s", server.Log())
		}
	}
}

// freeLease ends the lease of a killed process, so that the test need not wait for it.
func (s site) freeLease(t *testing.T) {
	t.Helper()
	if s.state == nil {
		return
	}
	db, err := sql.Open("pgx", s.state[1])
	rig.Must(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), `UPDATE leases SET until = 0 WHERE name = 'auditArchive'`)
	rig.Must(t, err)
}

// auditKey returns the verification key of the audit log from its server.
func (s site) auditKey(t *testing.T) string {
	t.Helper()
	store, err := sqlstore.OpenReadOnly(t.Context(), s.store())
	rig.Must(t, err)
	defer store.Close()
	url, err := keyring.EnsureFileKey(s.dir)
	rig.Must(t, err)
	keeper, err := keyring.Open(t.Context(), url)
	rig.Must(t, err)
	defer keeper.Close()
	ring, err := keyring.Existing(t.Context(), keeper, store.Setting)
	rig.Must(t, err)
	store.UseRowKey(ring.RowKey())
	signer, err := bootstrap.AuditSigner(t.Context(), bootstrap.Config{Store: store, Keyring: ring})
	rig.Must(t, err)
	return signer.Key
}
