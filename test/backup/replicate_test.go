package backup

import (
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/backup"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/bucket"
)

// behind is the maximum loss on a machine that is busy with other work.
const behind = time.Minute

// A replicated key server is killed at a random moment, and lost. A restore from the replica has each write
// that was acknowledged before the restore point, and nothing later; also for earlier restore points.
func TestAReplicaHasWhatWasAcknowledged(t *testing.T) {
	rig.Must(t, program.DependOnSources())
	t.Run("Directory", func(t *testing.T) { replicated(t, filepath.Join(t.TempDir(), "replica")) })
	t.Run("S3", func(t *testing.T) {
		place, _ := bucket.New(t)
		replicated(t, place)
	})
}

func replicated(t *testing.T, place string) {
	k := newBackupIdentity(t)
	h := newLoadedServer(t, "", "--replicate-to", place, "--replicate-recipient", k.Recipient().String())
	h.after(t, 300)
	filled := time.Now()
	rig.Within(t, behind, "the replica has what is written", func() bool {
		m, err := backup.FindRestorePoint(t.Context(), place, "", time.Time{})
		rig.Must(t, err)
		if m == nil {
			return false
		}
		rig.Must(t, m.Close())
		return m.Until.After(filled)
	})
	between := time.Now()
	h.after(t, h.count()+300+mathrand.IntN(300))
	h.server.Kill()
	killed := time.Now()
	h.rest()
	were := seqs(t, h.config())
	kek, err := os.ReadFile(filepath.Join(h.server.DataDir, "kek"))
	rig.Must(t, err)
	rig.Must(t, os.RemoveAll(h.server.DataDir))
	for _, at := range []time.Time{{}, between} {
		r := restored{dir: filepath.Join(t.TempDir(), "new")}
		r.config = sqlstore.Config{Dir: r.dir}
		m, err := backup.FindRestorePoint(t.Context(), place, "", at)
		rig.Must(t, err)
		if m == nil {
			t.Fatal("there is no replica")
		}
		latest := at
		if at.IsZero() {
			latest = killed
		}
		if m.Until.After(latest) || latest.Sub(m.Until) > behind {
			t.Errorf("of %s, for %s", m.Until, latest)
		}
		t.Logf("%s behind", latest.Sub(m.Until))
		done, err := m.Restore(t.Context(), k.String(), backup.Options{Target: r.config, Clock: time.Now})
		rig.Must(t, err)
		rig.Must(t, m.Close())
		r.begun, r.first = m.Until, done.Head.Last+1
		rig.Must(t, os.WriteFile(filepath.Join(r.dir, "kek"), kek, 0o600))
		there, named, later := r.account(t, r.open(t), h.acked, seqs(t, r.config), were)
		t.Logf("%d writes acknowledged: %d are there, %d and %d came after %s", len(h.acked), there, named, later, m.Until)
		if there == 0 {
			t.Error("nothing is there")
		}
		r.serves(t, h)
	}
}
