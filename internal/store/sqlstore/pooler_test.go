package sqlstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/pgbouncer"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestThroughAPooler checks that replicas start, write, and see each other's changes,
// with few connections to the server for all of them.
func TestThroughAPooler(t *testing.T) {
	for mode, most := range map[string]int{pgbouncer.Session: 40, pgbouncer.Transaction: 8} {
		t.Run(mode, func(t *testing.T) {
			direct := onServer(t)
			d := direct
			d.config.URL = pgbouncer.Start(t, direct.source, mode, most)
			stores := []*sqlstore.Store{d.open(t), d.open(t)}
			seen := make(chan keyserver.Change, 1000)
			stores[1].OnChange(func(changes []keyserver.Change) {
				for _, c := range changes {
					seen <- c
				}
			})
			const each, callers = 20, 4
			var wg sync.WaitGroup
			for i, s := range stores {
				defer closeStore(t, s)
				w := openWriter(t, s, audit.Options{})
				defer closeWriter(t, w)
				for c := range callers {
					wg.Go(func() {
						for n := range each {
							if err := w.Write(t.Context(), row("hmacData", "", 1)); err != nil {
								t.Error(err)
							}
							if c == 0 {
								number := uint64(1000*i + n + 1)
								update(t, s, insertRole(role(number, fmt.Sprint("role ", number))))
							}
							if _, err := s.Roles(t.Context()); err != nil {
								t.Error(err)
							}
						}
					})
				}
			}
			wg.Wait()
			rig.Soon(t, "the second one has seen the first one's changes", func() bool {
				for {
					select {
					case c := <-seen:
						if c.ID == id(each) {
							return true
						}
					default:
						return false
					}
				}
			})
			if report := readOnly(t, direct); !report.Intact() || report.Chains != 2 || report.Rows != 2*each*callers {
				t.Errorf("the trail: %+v", report)
			}
			if report := readOnly(t, d); !report.Intact() {
				t.Errorf("the trail through the pooler: %+v", report)
			}
		})
	}
}

// TestAPoolerThatIsCutOff checks that replicas that lose their connections and locks take
// the locks again.
func TestAPoolerThatIsCutOff(t *testing.T) {
	cluster := pgtest.Start(t)
	d := database{config: sqlstore.Config{URL: pgbouncer.Start(t, cluster.Database(t), pgbouncer.Transaction, 10)}}
	one, two := d.open(t), d.open(t)
	defer closeStore(t, one)
	defer closeStore(t, two)
	w1, w2 := openWriter(t, one, audit.Options{}), openWriter(t, two, audit.Options{})
	defer closeWriter(t, w1)
	defer closeWriter(t, w2)
	for n := range uint64(2) {
		cluster.Kill(t)
		cluster.Restart(t)
		for i, w := range []*audit.Writer{w1, w2, w1} {
			rig.Soon(t, fmt.Sprint("rows are written again ", i), func() bool { return w.Write(t.Context(), row("hmacData", "", 1)) == nil })
		}
		rig.Soon(t, "updates go on", func() bool { return tryUpdate(t, two, insertRole(role(n+1, fmt.Sprint(n)))) == nil })
		rig.Must(t, one.Current(t.Context()))
	}
	if report := verify(t, one); !report.Intact() || report.Chains > 4 {
		t.Errorf("the trail: %+v", report)
	}
}

// TestAPoolerWithoutTransactions checks that the error names the setting to change.
func TestAPoolerWithoutTransactions(t *testing.T) {
	through := pgbouncer.Start(t, pgtest.Database(t), pgbouncer.Statement, 4)
	_, err := sqlstore.Open(t.Context(), sqlstore.Config{URL: through})
	if !errors.Is(err, sqlstore.ErrUnusable) || !strings.Contains(err.Error(), "pool mode") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

// TestSynchronousCommitThroughAPooler checks the setting of the role, because a setting
// of the session does not last behind a pooler.
func TestSynchronousCommitThroughAPooler(t *testing.T) {
	d := onServer(t)
	d.tamper(t, `DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET synchronous_commit = off'; END $$`)
	_, err := sqlstore.Open(t.Context(), sqlstore.Config{URL: pgbouncer.Start(t, d.source, pgbouncer.Transaction, 4)})
	if !errors.Is(err, sqlstore.ErrUnusable) || !strings.Contains(err.Error(), "synchronous_commit") {
		t.Errorf("got %v", err)
	}
	closeStore(t, d.open(t)) // without a pooler the session sets it
}
