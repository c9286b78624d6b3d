// Package schedules has the shared parts of suites in simulated time (testing/synctest): random decisions, the
// trace of a schedule, and the loop over many schedules.
//
// A seed is a schedule: SCHEDULES_FROM is the first seed, SCHEDULES the number of schedules.
package schedules

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Dice makes the random decisions of one schedule. A decision depends only on the seed, its name, and how often the
// name occurred before, not on other events.
type Dice struct {
	seed uint64

	mu       sync.Mutex
	happened map[string]uint64
}

// NewDice returns the Dice of a seed.
func NewDice(seed uint64) *Dice { return &Dice{seed: seed, happened: map[string]uint64{}} }

// Of returns the random source for the next decision with a name.
func (d *Dice) Of(what string) *rand.Rand {
	d.mu.Lock()
	d.happened[what]++
	n := d.happened[what]
	d.mu.Unlock()
	h := fnv.New64a()
	_, _ = h.Write([]byte(what)) // never fails
	return rand.New(rand.NewPCG(d.seed, h.Sum64()^n))
}

// Trace records the events of a schedule. It formats them only for output, because most schedules succeed and
// formatting is slower than the events.
type Trace struct {
	begin time.Time

	mu    sync.Mutex
	lines []line
}

type line struct {
	at     time.Duration
	format string
	args   []any
}

// Begin returns a trace that begins now.
func Begin() *Trace { return &Trace{begin: time.Now()} }

// Say adds a line. The caller must not change the arguments later.
func (t *Trace) Say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, line{time.Since(t.begin), format, args})
}

// AsTest formats a failed schedule as a test that repeats it. call is the expression that returns the failure.
func (t *Trace) AsTest(seed uint64, wrong []string, call string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n\nfunc TestSchedule%d(t *testing.T) {\n\tif wrong := %s; wrong != \"\" {\n\t\tt.Error(wrong)\n\t}\n}\n", strings.Join(wrong, "\n"), seed, call)
	for _, l := range t.lines {
		fmt.Fprintf(&out, "\n%9.3fs "+l.format, append([]any{l.at.Seconds()}, l.args...)...)
	}
	return out.String()
}

const (
	// sayEach is the interval at which a long run logs its progress.
	sayEach = time.Minute
	// before is the time before the test's deadline in which no new schedule begins.
	before = 15 * time.Second
	// shown is the maximum number of printed failed schedules.
	shown = 3
)

// Each runs schedules on all processors and returns how many it ran: SCHEDULES, or usual if it is not set. Shortly
// before the deadline of the test it stops, and logs the next seed. one returns the failure of a schedule, or "".
func Each(t *testing.T, usual uint64, one func(seed uint64) (wrong string)) (ran uint64) {
	t.Helper()
	first, n := number(t, "SCHEDULES_FROM", 1), number(t, "SCHEDULES", usual)
	deadline, limited := t.Deadline()
	var next, failed atomic.Uint64
	at := make([]atomic.Uint64, runtime.GOMAXPROCS(0)) // current schedule of each worker
	var workers sync.WaitGroup
	for w := range at {
		workers.Go(func() { // it ends early if synctest has ended the test
			for !limited || time.Until(deadline) > before {
				i := next.Add(1) - 1
				at[w].Store(i)
				if i >= n {
					return
				}
				if wrong := one(first + i); wrong != "" && failed.Add(1) <= shown {
					t.Error(wrong)
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		workers.Wait()
		close(ended)
	}()
	for {
		select {
		case <-ended:
			ran = min(next.Load(), n)
			if ran == 0 {
				t.Error("no schedule was run: SCHEDULES is 0, or the test's deadline is too near")
			}
			t.Logf("%d schedules, from SCHEDULES_FROM=%d on, %d went wrong; the next one is SCHEDULES_FROM=%d", ran, first, failed.Load(), first+ran)
			return ran
		case <-time.After(sayEach):
			done := n
			for w := range at {
				done = min(done, at[w].Load())
			}
			t.Logf("%d schedules, %d went wrong; SCHEDULES_FROM=%d goes on", done, failed.Load(), first+done)
		}
	}
}

func number(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s is %q, and has to be a number", variable, text)
	}
	return n
}
