package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/program"
)

type fault struct {
	name string
	// targets are the parts that the fault affects. No other fault affects them at the same time.
	targets []string
	// inject causes the fault, and returns a function that heals it.
	inject func(t *testing.T, r *rand.Rand) (heal func())
}

func (w *world) faults() (all []fault) {
	add := func(name string, inject func(t *testing.T, r *rand.Rand) func(), targets ...string) {
		all = append(all, fault{name, targets, inject})
	}
	for _, s := range w.sites {
		for _, m := range s.members {
			// Each site is killed equally often, even if it has more processes.
			for range 3 / len(s.members) {
				add("kill "+m.name, m.killed, m.name)
			}
			add("freeze "+m.name, m.frozen, m.name)
			add("set the clock of "+m.name, m.clockSet, m.name)
			if m.wire != nil {
				add("cut "+m.name+" off its database", m.wire.cutOff, m.name)
				add("swallow what "+m.name+" and its database say", m.wire.swallowed, m.name)
			}
		}
		var everybody []string
		for _, m := range s.members {
			everybody = append(everybody, m.name)
		}
		if s.disk != nil {
			add("fill the disk of "+s.name, func(t *testing.T, _ *rand.Rand) func() {
				s.disk.fill(t)
				return func() { s.disk.free(t) }
			}, everybody...)
		}
		if s.database != nil {
			add("kill the database of "+s.name, func(t *testing.T, _ *rand.Rand) func() {
				s.database.Kill(t)
				return func() { s.database.Restart(t) }
			}, everybody...)
			add("slow the database of "+s.name, func(*testing.T, *rand.Rand) func() {
				for _, m := range s.members {
					m.wire.delay.Store(int64(20 * time.Millisecond))
				}
				return func() {
					for _, m := range s.members {
						m.wire.delay.Store(0)
					}
				}
			}, everybody...)
		}
		if s.peers != nil {
			add("part "+s.name+" from its peer", s.peers.cutOff, "peers of "+s.name)
			add("swallow what "+s.name+" and its peer say", s.peers.swallowed, "peers of "+s.name)
		}
	}
	if w.cluster != nil {
		all = append(all, w.cluster.faults()...)
	}
	return all
}

// killed kills the process with SIGKILL, and restarts it, perhaps after more kills.
func (m *member) killed(t *testing.T, r *rand.Rand) (heal func()) {
	m.server.Kill()
	return func() {
		for r.IntN(3) == 0 {
			again, err := built.Begin(m.dir, m.args...)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(upTo(r, 200*time.Millisecond))
			again.Kill()
		}
		m.start(t)
	}
}

func (m *member) frozen(t *testing.T, _ *rand.Rand) (heal func()) {
	return m.server.Freeze(t)
}

// clockSet sets the machine's clock forward or back by up to an hour, and later resets it.
func (m *member) clockSet(t *testing.T, r *rand.Rand) (heal func()) {
	set := func(ahead time.Duration) {
		if err := program.SetClock(m.dir, ahead); err != nil {
			t.Error(err)
		}
	}
	set(upTo(r, 2*time.Hour) - time.Hour)
	return func() { set(0) }
}

func (w *wire) cutOff(*testing.T, *rand.Rand) (heal func()) {
	w.cut.Store(true)
	w.closeConnections()
	return func() { w.cut.Store(false) }
}

func (w *wire) swallowed(*testing.T, *rand.Rand) (heal func()) {
	w.silent.Store(true)
	return func() { w.silent.Store(false) }
}

// The shape of a plan: the number of faults in a round, when they begin and how long they last.
const (
	perRound = 6
	begins   = 1500 * time.Millisecond
	shortest = 200 * time.Millisecond
	longest  = 2500 * time.Millisecond
)

// plan draws the faults of a round. Two never affect the same target at the same time, but faults
// of different targets overlap.
func (w *world) plan(r *run) (plan []event) {
	all := slices.DeleteFunc(w.faults(), func(f fault) bool { return r.draws != nil && !r.draws.MatchString(f.name) })
	if len(all) == 0 {
		return nil
	}
	busy := map[string]time.Duration{} // by target, the end of its last fault
	for range perRound {
		f := all[r.IntN(len(all))]
		e := event{fault: f, at: upTo(r.Rand, begins), lasts: shortest + upTo(r.Rand, longest-shortest), draw: r.Uint64()}
		for _, target := range f.targets {
			e.at = max(e.at, busy[target])
		}
		for _, target := range f.targets {
			busy[target] = e.at + e.lasts + 50*time.Millisecond
		}
		plan = append(plan, e)
	}
	return plan
}

// inject executes a plan in one goroutine, so that the log shows the faults in order.
func (w *world) inject(t *testing.T, plan []event) {
	t.Helper()
	type act struct {
		at time.Duration
		do func()
	}
	var acts []act
	for _, e := range plan {
		var heal func()
		r := rand.New(rand.NewPCG(e.draw, 0))
		acts = append(acts, act{e.at, func() {
			w.done = append(w.done, e.fault.name)
			t.Logf("%s, for %v", e.fault.name, e.lasts.Round(time.Millisecond))
			heal = e.fault.inject(t, r)
		}}, act{e.at + e.lasts, func() { heal() }})
	}
	slices.SortStableFunc(acts, func(a, b act) int { return cmp.Compare(a.at, b.at) })
	start := time.Now()
	for _, a := range acts {
		time.Sleep(time.Until(start.Add(a.at)))
		a.do()
	}
}

// A plan has no overlapping faults of one target, and the same seed draws the same plan.
func TestPlans(t *testing.T) {
	draw := func(seed uint64) string {
		w := &world{sites: []*site{{name: "a", members: []*member{{name: "a 0"}}}, {name: "b", members: []*member{{name: "b 0"}, {name: "b 1"}}}}}
		r := &run{Rand: rand.New(rand.NewPCG(seed, 0))}
		text := ""
		for range 100 {
			plan := w.plan(r)
			for i, e := range plan {
				text += fmt.Sprint(e.fault.name, e.at, e.lasts, e.draw, "\n")
				for _, other := range plan[:i] {
					if e.fault.targets[0] == other.fault.targets[0] && e.at < other.at+other.lasts && other.at < e.at+e.lasts {
						t.Errorf("%s and %s at once", e.fault.name, other.fault.name)
					}
				}
			}
		}
		return text
	}
	if first, again := draw(1), draw(1); first != again || first == draw(2) {
		t.Error("a plan does not follow from its seed alone")
	}
}
