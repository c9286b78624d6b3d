package backup

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

func migrateArgs(dir, url string) []string {
	return []string{"migrate", "--from", "sqlite", "--data-dir", dir, "--to", "postgres", "--database-url", url}
}

// halfway starts a migration, and ends it when the target has tables but not its name yet. If the
// migration is faster, halfway tries again with another database.
func halfway(t *testing.T, dir string, end syscall.Signal) (url, said string) {
	t.Helper()
	for range 50 {
		url = pgtest.DurableDatabase(t)
		conn, err := pgx.Connect(t.Context(), url)
		rig.Must(t, err)
		said, ended := endWhen(t, end, func() (half bool) {
			rig.Must(t, conn.QueryRow(t.Context(), `SELECT to_regclass('keyserver_schema_restoring') IS NOT NULL AND to_regclass('roles') IS NOT NULL`).Scan(&half))
			return half
		}, migrateArgs(dir, url)...)
		rig.Must(t, conn.Close(t.Context()))
		if ended {
			return url, said
		}
		rig.Must(t, os.Remove(filepath.Join(dir, sqlite.MovedFile))) // it has completed
	}
	t.Fatal("it is always faster")
	return "", ""
}

// A key server is killed under load, and its database is migrated. All acknowledged writes exist,
// including those that only the journal had. A killed migration can be repeated, and no server runs
// on the incomplete database.
func TestMigrateAfterKills(t *testing.T) {
	rig.Must(t, program.DependOnSources())
	h := newLoadedServer(t, "")
	h.after(t, 200)
	h.server.Kill()
	h.rest()
	dir := h.server.DataDir
	if journal, err := os.Stat(filepath.Join(dir, "audit.journal")); err != nil || journal.Size() == 0 {
		t.Fatalf("nothing is in a journal: %v", err)
	}

	url, out := halfway(t, dir, syscall.SIGTERM)
	if !strings.Contains(out, "nothing was moved") || strings.Count(out, "\n") != 1 {
		t.Errorf("interrupted: %s", out)
	}
	conn, err := pgx.Connect(t.Context(), url)
	rig.Must(t, err)
	var left int
	rig.Must(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace`).Scan(&left))
	rig.Must(t, conn.Close(t.Context()))
	if left > 0 {
		t.Errorf("%d tables are left", left)
	}

	url, _ = halfway(t, dir, syscall.SIGKILL)
	if out, err := run(t, "serve", "--data-dir", dir, "--database-url", url, "--listen", "127.0.0.1:0", "--external-listen", ""); err == nil || !strings.Contains(out, "is incomplete") {
		t.Errorf("it is served from: %v\n%s", err, out)
	}
	again, err := built.Serve(dir, "--log-level", "error") // the source is as it was
	rig.Must(t, err)
	if out, err := run(t, migrateArgs(dir, url)...); err == nil || !strings.Contains(out, "in use by another process") {
		t.Errorf("of a database that is served from: %v\n%s", err, out)
	}
	rig.Must(t, again.Stop())
	were := seqs(t, h.config())
	if out, err := run(t, migrateArgs(dir, url)...); err != nil || !strings.Contains(out, "each compared") {
		t.Fatal(err, out)
	}
	if out, err := run(t, "serve", "--data-dir", dir, "--listen", "127.0.0.1:0", "--external-listen", ""); err == nil || !strings.Contains(out, "was moved to the PostgreSQL database") || strings.Count(out, "\n") != 1 {
		t.Errorf("the source is served from: %v\n%s", err, out)
	}
	if out, err := run(t, migrateArgs(dir, url)...); err == nil || !strings.Contains(out, "has tables") || !strings.Contains(out, "was moved to") {
		t.Errorf("a second time: %v\n%s", err, out)
	}
	r := restored{config: sqlstore.Config{URL: url}, dir: dir, begun: time.Now(), first: math.MaxInt64}
	there, _, _ := r.account(t, r.open(t), h.acked, seqs(t, r.config), were)
	if there < 200 {
		t.Errorf("%d of %d acknowledged writes are there", there, len(h.acked))
	}
	r.serves(t, h)
}
