package consistency

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// How the primary of a synchronous pair fails before its standby is promoted.
var failures = []struct {
	name string
	fail func(*pgtest.Cluster, testing.TB)
}{
	{"Killed", (*pgtest.Cluster).Kill},
	// Its connections stay, it accepts new ones, and it never responds.
	{"Silent", (*pgtest.Cluster).Freeze},
}

func TestFailover(t *testing.T) {
	for _, f := range failures {
		t.Run(f.name, func(t *testing.T) { failover(t, f.fail) })
	}
}

// runsVariable is the number of failovers of each kind: 50 for docs/guides/postgresql-failures.md.
const runsVariable = "BENCH_RUNS"

// BenchmarkFailover measures the time from the promotion to the first successful write and the
// first decision, and from the failure to the write.
func BenchmarkFailover(b *testing.B) {
	runs := 1
	if text := os.Getenv(runsVariable); text != "" {
		var err error
		if runs, err = strconv.Atoi(text); err != nil || runs < 1 {
			b.Fatalf("%s is %q, and has to be a number from 1 on", runsVariable, text)
		}
	}
	for _, f := range failures {
		b.Run(f.name, func(b *testing.B) {
			for b.Loop() {
				var promotions, writes, reads, each []time.Duration
				for n := range runs {
					took := failover(b, f.fail)
					fmt.Fprintf(os.Stderr, "run %d: %+v\n", n+1, took)
					writes, reads, each = append(writes, took.write), append(reads, took.read), append(each, took.last)
					promotions = append(promotions, took.promotion)
				}
				for unit, all := range map[string][]time.Duration{"promotion": promotions, "write": writes, "read": reads, "last-replica": each} {
					slices.Sort(all)
					b.ReportMetric(float64(all[len(all)/2].Milliseconds()), unit+"-median-ms")
					b.ReportMetric(float64(all[len(all)-1].Milliseconds()), unit+"-worst-ms")
				}
			}
			b.ReportMetric(0, "ns/op") // most of it is the setup
		})
	}
}

// times has the times from the promote command to the first response: to a write, to an authorization, and to both by
// the slowest replica. promotion is the time that the database needs.
type times struct{ promotion, write, read, last time.Duration }

// failover makes the primary of a synchronous pair fail under load, and promotes its standby. The replicas recover
// without a restart, all acknowledged changes exist, and one order explains every response.
func failover(t testing.TB, fail func(*pgtest.Cluster, testing.TB)) (took times) {
	t.Helper()
	primary := pgtest.Start(t)
	url := primary.Database(t)
	standby := primary.Standby(t, "second")
	primary.SQL(t, `ALTER SYSTEM SET synchronous_standby_names = 'second'`)
	primary.SQL(t, `SELECT pg_reload_conf()`)
	servers := built.Replicas(t, make([][]string, 3), "--database-url", pgtest.On(url, primary, standby))
	w := newWorld(t, servers...)
	w.hold = make(chan struct{})

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h := newHistory(staleness)
	roles := roles{acknowledged: map[string]bool{}}
	var owners, others sync.WaitGroup
	var writers, readers []int
	for i, c := range w.owners {
		writers = append(writers, i)
		owners.Go(func() { w.write(ctx, h, i, c) })
		others.Go(func() { roles.write(ctx, i, c) })
	}
	for i, u := range w.users {
		readers = append(readers, len(w.owners)+i)
		others.Go(func() { w.ask(ctx, h, len(w.owners)+i, u) })
	}
	everybody := slices.Concat(writers, readers)
	rig.Soon(t, "there is load", func() bool { _, all := h.heardSince(0, everybody...); return all && h.now() > int64(staleness) })
	fail(primary, t)
	// A database supervisor also needs some time.
	sleep(ctx, rand.N(4*time.Second))
	began := h.now()
	standby.Promote(t)
	took.promotion = time.Duration(h.now() - began).Round(time.Millisecond)
	since := func(what string, clients ...int) time.Duration {
		rig.Soon(t, what, func() bool { _, all := h.heardSince(began, clients...); return all })
		first, _ := h.heardSince(began, clients...)
		return time.Duration(first - began).Round(time.Millisecond)
	}
	for _, client := range everybody {
		took.last = max(took.last, since("every client goes on", client))
	}
	took.write, took.read = since("writes go on", writers...), since("decisions go on", readers...)
	close(w.hold)
	owners.Wait()
	sleep(ctx, 2*staleness) // the last writes are read, too
	cancel()
	others.Wait()
	t.Logf("after the promotion: %+v; %d roles were acknowledged", took, len(roles.acknowledged))
	if !w.judge(t, h) { // a write without a response may have taken effect at any time or never
		t.Log("no order was found in time, and none excluded: this run shows nothing of the lists")
	}
	roles.check(t, w.owners[2])

	for _, s := range servers {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
	if out, err := built.Run("audit", "verify", "--database-url", pgtest.On(url, standby)); err != nil {
		t.Errorf("the trail: %v\n%s", err, out)
	}
	return took
}

// roles are those whose creation was acknowledged. Each is created once, so that a lost one is noticed.
type roles struct {
	mu           sync.Mutex
	acknowledged map[string]bool
}

func (r *roles) write(ctx context.Context, id int, c *client.Client) {
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("role %d of %d", n, id)
		if _, err := c.CreateRole(ctx, schema.CreateRoleRequest{Name: name}); err == nil {
			r.mu.Lock()
			r.acknowledged[name] = true
			r.mu.Unlock()
		}
		sleep(ctx, 2*betweenOps)
	}
}

func (r *roles) check(t testing.TB, c *client.Client) {
	t.Helper()
	all, err := c.ListRoles(t.Context())
	rig.Must(t, err)
	there := map[string]bool{}
	for _, role := range all.Roles {
		there[role.Name] = true
	}
	for name := range r.acknowledged {
		if !there[name] {
			t.Errorf("%s was acknowledged and is gone", name)
		}
	}
}
