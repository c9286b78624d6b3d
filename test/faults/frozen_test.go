package faults

import (
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/pgbouncer"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestOthersGoOnWhileOneIsFrozen stops a replica while it locks the row of the audit log's sequence, for which the
// other replicas wait. They have to continue meanwhile, and the stopped replica has to continue when it resumes.
func TestOthersGoOnWhileOneIsFrozen(t *testing.T) {
	t.Run("Direct", func(t *testing.T) {
		url := pgtest.DurableDatabase(t)
		othersGoOn(t, url, url)
	})
	t.Run("ThroughAPooler", func(t *testing.T) {
		url := pgtest.DurableDatabase(t)
		othersGoOn(t, url, pgbouncer.Start(t, url, pgbouncer.Transaction, 20))
	})
}

func othersGoOn(t *testing.T, url, through string) {
	all := replicas(t, 3, "--database-url", through)
	_, stop := load(t, all, 4)
	frozen, others := all[0], all[1:]
	look := connect(t, url)
	// asleep counts transactions that lock the row and whose client is silent.
	asleep := func() (n int) {
		t.Helper()
		err := look.QueryRow(t.Context(), `SELECT count(DISTINCT a.pid) FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid
			WHERE a.datname = current_database() AND a.wait_event = 'ClientRead' AND l.relation = 'sequences'::regclass AND l.mode = 'RowExclusiveLock'
			AND clock_timestamp() - a.state_change > interval '80 ms'`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const rounds = 3
	for range rounds {
		var since time.Time
		var resume func()
		rig.Soon(t, "it is stopped in the middle of a transaction", func() bool {
			since = time.Now()
			resume = frozen.Freeze(t)
			time.Sleep(100 * time.Millisecond)
			if asleep() > 0 {
				return true
			}
			resume()
			time.Sleep(20 * time.Millisecond)
			return false
		})
		before := []int64{others[0].done.Load(), others[1].done.Load()}
		rig.Within(t, 15*time.Second, "the others go on", func() bool {
			return others[0].done.Load() > before[0] && others[1].done.Load() > before[1]
		})
		t.Logf("the others went on after %v", time.Since(since).Round(time.Millisecond))
		if asleep() > 0 {
			t.Error("it still holds the row")
		}
		resume()
		mine := frozen.done.Load()
		rig.Soon(t, "it goes on itself", func() bool { return frozen.done.Load() > mine })
	}
	stop()
	for _, r := range all {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	}
	if out, err := built.Run("audit", "verify", "--database-url", url); err != nil {
		t.Errorf("the trail: %v\n%s", err, out)
	}
}
