package chaos

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/ledger"
)

// world has all running parts.
type world struct {
	*run
	sites   []*site
	workers []*worker
	cluster *cluster // nil without a manager
	done    []string // injected faults
}

func newWorld(t *testing.T, r *run) *world {
	t.Helper()
	w := &world{run: r}
	if r.has(embeddedPart) {
		w.sites = append(w.sites, embedded(t, 2))
	}
	if r.has(replicatedPart) {
		w.sites = append(w.sites, replicated(t, 3, 3))
	}
	if len(w.sites) == 2 {
		federate(t, w.sites[0], w.sites[1])
	}
	for _, s := range w.sites {
		w.workers = append(w.workers, s.workers(t)...)
	}
	if r.has(managerPart) {
		w.cluster = newCluster(t, w.sites[0])
	}
	return w
}

// minAnswers is the number of responses that a site has to give before the faults of a round, and again after them. So
// each part is in use before a fault, and recovers without a restart of the test.
const minAnswers = 30

// round injects faults under load, heals them, and checks.
func (w *world) round(t *testing.T, round int, plan []event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*rig.Patience)
	defer cancel()
	kept := w.measure(t)
	var over atomic.Bool
	var mu sync.Mutex
	var wrong []string
	tell := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		wrong = append(wrong, err.Error())
	}
	// If the round ends early, the findings may be the reason.
	told := sync.OnceFunc(func() {
		mu.Lock()
		defer mu.Unlock()
		ledger.Report(t, wrong)
	})
	defer told()
	var group sync.WaitGroup
	for i, one := range w.workers {
		at := (i + round) % len(one.site.members)
		one.at, one.Client = one.site.members[at], one.members[at]
		group.Go(func() { one.work(ctx, w.of(round, i), &over, tell) })
	}
	var orders []*order
	for _, s := range w.sites {
		o := newOrder(s)
		orders = append(orders, o)
		o.begin(t, ctx, &group, &over, w.of(round, 1000+int(s.system)), tell)
	}
	if w.cluster != nil {
		w.cluster.begin(t, ctx, &group, &over, w.of(round, 2000), tell)
	}

	start := time.Now()
	spent := ""
	phase := func(name string) {
		spent += fmt.Sprintf(" %s %v", name, time.Since(start).Round(10*time.Millisecond))
		start = time.Now()
	}
	w.awaitProgress(t)
	phase("begun")
	w.inject(t, plan)
	phase("broken")
	for _, s := range w.sites {
		s.awaitReady(t)
	}
	w.awaitProgress(t)
	phase("healed")
	over.Store(true)
	group.Wait()
	phase("ended")
	told()

	time.Sleep(staleness) // a change at one replica may be visible later at another
	for _, s := range w.sites {
		s.check(t, round)
	}
	w.compare(t, len(plan) > 0)
	for _, o := range orders {
		o.check(t, round)
	}
	phase("read back")
	if w.cluster != nil {
		w.cluster.check(t)
	}
	phase("compared")
	kept.check(t)
	phase("at rest")
	t.Logf("round %d:%s", round, spent)
}

// awaitProgress waits until each site has given more responses.
func (w *world) awaitProgress(t *testing.T) {
	t.Helper()
	for _, s := range w.sites {
		before := s.requests.Answered()
		rig.Soon(t, s.name+" goes on", func() bool {
			s.failIfExited(t)
			return s.requests.Answered() >= before+minAnswers
		})
	}
}

// finish stops all processes in order.
func (w *world) finish(t *testing.T) {
	t.Helper()
	if w.cluster != nil {
		w.cluster.stop(t)
	}
	for _, s := range w.sites {
		s.verify(t)
		t.Logf("%s: %d requests answered, %d objects, %d audit rows", s.name, s.requests.Answered(), len(s.objects.Names(true)), s.log.Last)
	}
}

// event is a fault with its start and duration.
type event struct {
	fault     fault
	at, lasts time.Duration
	draw      uint64 // seed for the random choices of the fault
}
