package crash

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/archive"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestReplicasArchiveTogether has two replicas archive the same segments into one directory at the same time, as after
// a lease that expired early. One replica is killed during each object and during the removal, while clients use a
// third replica. An existing object never changes, and the archive and the database together have the complete log.
func TestReplicasArchiveTogether(t *testing.T) {
	const segments = 4
	s := onPostgreSQL(t)
	rig.Must(t, s.serve(t).Stop())
	rows := s.longTrail(t, segments*archive.Rows)
	grown := s.serve(t)
	s.await(t, grown, func(store *sqlstore.Store) bool {
		head, err := store.AuditTree(t.Context())
		return err == nil && head.Size >= rows
	})
	w := newWorld(t, dice(t), grown)
	// Every replica that requests the lease gets it.
	s.exec(t, `CREATE FUNCTION give() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.until := 0; RETURN NEW; END $$`)

	dir := t.TempDir()
	archiving := s
	archiving.args = append(slices.Clone(s.args), "--audit-archive", "file://"+dir, "--audit-retention", "1h")
	seen := objects{dir: dir, sums: map[string][sha256.Size]byte{}}
	for round, moment := range []string{".rows.zst.*.new", ".rows.zst", ".checkpoint", ".json", "the removal"} {
		there := len(seen.matching(t, moment))
		one, other := archiving.serve(t), archiving.serve(t)
		// Start first: no replica starts with the changed schema.
		s.exec(t, `CREATE TRIGGER give BEFORE UPDATE ON leases FOR EACH ROW WHEN (NEW.name = 'auditArchive') EXECUTE FUNCTION give()`)
		w.load(t, round, func() {
			s.await(t, other, func(store *sqlstore.Store) bool {
				e, err := store.AuditExtent(t.Context())
				return err == nil && e.First > 1 || len(seen.matching(t, moment)) > there
			})
			other.Kill()
		})
		w.settle(t.Context(), t, round, false)
		rig.Must(t, one.Stop())
		s.exec(t, `DROP TRIGGER give ON leases`)
		seen.unchanged(t)
		if log := one.Log() + other.Log(); strings.Contains(log, `"level":"ERROR"`) {
			t.Errorf("%s: %s", moment, log)
		}
	}
	// The last rows are archived, too, but are too new to be removed.
	last := archiving.serve(t)
	var archived int64
	s.await(t, last, func(store *sqlstore.Store) bool {
		head, err := store.AuditTree(t.Context())
		if err != nil {
			return false
		}
		archived = head.Size / archive.Rows
		e, err := store.AuditExtent(t.Context())
		return err == nil && e.First == segments*archive.Rows+1 && int64(len(seen.matching(t, ".json"))) == archived
	})
	rig.Must(t, last.Stop())
	seen.unchanged(t)
	if n := int64(len(seen.sums)); n != 3*archived {
		t.Errorf("there are %d objects, want %d", n, 3*archived)
	}
	w.check(t, 0, true)

	head, err := grown.Admin(t, program.NoRetries).GetAuditCheckpoint(t.Context())
	rig.Must(t, err)
	rig.Must(t, grown.Stop())
	noted := filepath.Join(t.TempDir(), "checkpoint")
	rig.Must(t, os.WriteFile(noted, []byte(head), 0o600))
	sealed := filepath.Join(dir, "00000000000000000001.checkpoint")
	key := s.auditKey(t)
	out, err := binary.Run("audit", "verify", "--archive", "file://"+dir, "--key", key, "--checkpoint", noted, "--checkpoint", sealed)
	intact := fmt.Sprintf("audit archive intact: rows 1 to %d in %d segments", archived*archive.Rows, archived)
	beyond := strings.Count(out, "more than the archive has")
	if err != nil || !strings.HasPrefix(out, intact) || beyond == 0 || beyond+strings.Count(out, "\ncontinues ") != 2 { // the archive may have it
		t.Errorf("%v\n%s", err, out)
	}
	out, err = binary.Run("audit", "verify", "--database-url", s.state[1], "--key", key, "--checkpoint", noted)
	if err != nil || !strings.HasPrefix(out, "audit log intact") || !strings.Contains(out, "It begins at row 262145.") {
		t.Errorf("%v\n%s", err, out)
	}
}

// objects has the known objects of an archive in a directory.
type objects struct {
	dir  string
	sums map[string][sha256.Size]byte
}

func (o objects) matching(t *testing.T, suffix string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(o.dir, "*"+suffix))
	rig.Must(t, err)
	return found
}

// unchanged fails the test if a known object is missing or has changed.
func (o objects) unchanged(t *testing.T) {
	t.Helper()
	files, err := os.ReadDir(o.dir)
	rig.Must(t, err)
	now := map[string][sha256.Size]byte{}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".new") { // a killed process left it
			continue
		}
		content, err := os.ReadFile(filepath.Join(o.dir, f.Name()))
		rig.Must(t, err)
		now[f.Name()] = sha256.Sum256(content)
	}
	for name, sum := range o.sums {
		if now[name] != sum {
			t.Errorf("%s is not as it was", name)
		}
	}
	maps.Copy(o.sums, now)
}
