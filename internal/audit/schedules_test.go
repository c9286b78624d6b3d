package audit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/test/rig/schedules"
)

// TestSchedules runs the writer in simulated time, on a database that responds late or never, that commits although it
// reports a failure, that loses claims, and to which another process writes. The result of a call depends only on the
// seed and on the number of earlier calls of its kind. So a seed defines a schedule of results.
//
// An acknowledged row must be present exactly once, before the acknowledgement. A row must be absent if it was refused
// because the queue was full. Rows of one call must be consecutive, the rows of each caller in its order, and all
// chains valid.
const (
	simCallers = 6
	simWrites  = 8
)

// TestSchedules runs SCHEDULES schedules, starting with SCHEDULES_FROM.
func TestSchedules(t *testing.T) {
	var acknowledged, refused atomic.Uint64
	n := schedules.Each(t, 1000, func(seed uint64) string {
		d := schedule(t, seed)
		acknowledged.Add(d.acknowledged)
		refused.Add(d.refused)
		return d.asTest()
	})
	t.Logf("%d writes acknowledged, %d refused", acknowledged.Load(), refused.Load())
	if acknowledged.Load() < n || refused.Load() < n {
		t.Errorf("in %d schedules %d writes were acknowledged and %d refused", n, acknowledged.Load(), refused.Load())
	}
}

// TestSchedulesFindALostCommit checks that the checks above detect a database that loses acknowledged rows.
func TestSchedulesFindALostCommit(t *testing.T) {
	found := 0
	for seed := range uint64(20) {
		if len(scheduleOn(t, &simTrail{seed: seed, forgets: true}).wrong) > 0 {
			found++
		}
	}
	if found < 15 {
		t.Errorf("it was found in %d of 20 schedules", found)
	}
}

func schedule(t *testing.T, seed uint64) *simTrail {
	t.Helper()
	return scheduleOn(t, &simTrail{seed: seed})
}

func scheduleOn(t *testing.T, d *simTrail) *simTrail {
	t.Helper()
	synctest.Test(t, d.run)
	return d
}

type simTrail struct {
	seed    uint64
	forgets bool
	dice    *schedules.Dice
	trace   *schedules.Trace
	ghosts  sync.WaitGroup

	mu     sync.Mutex
	rows   []keyserver.AuditEntry
	heads  []audit.Head
	held   *simChain
	other  int  // index of the chain of another process in heads; 0 before its first row
	over   bool // the database causes no more failures
	wrong  []string
	writes []simWrite

	acknowledged, refused uint64
}

type simWrite struct {
	caller int
	names  []string
	err    error
}

// asTest returns the failed schedule as the source of a test, or "" if nothing failed.
func (d *simTrail) asTest() string {
	if len(d.wrong) == 0 {
		return ""
	}
	return d.trace.AsTest(d.seed, d.wrong, fmt.Sprintf("schedule(t, %d).asTest()", d.seed))
}

func (d *simTrail) run(t *testing.T) {
	d.dice, d.trace = schedules.NewDice(d.seed), schedules.Begin()
	d.over = true // no failures until the writer exists
	w, err := audit.NewWriter(t.Context(), d, audit.Options{Queue: 2, Batch: 4})
	if err != nil {
		t.Fatal(err)
	}
	d.over = false
	var callers sync.WaitGroup
	for n := range simCallers {
		callers.Go(func() { d.call(t.Context(), w, n) })
	}
	callers.Wait()
	d.mu.Lock()
	d.over = true
	d.mu.Unlock()
	d.ghosts.Wait()
	for tries := 0; ; tries++ { // the writer recovers by itself
		if err = w.Write(t.Context(), named("last")); err == nil || tries == 3 {
			break
		}
	}
	if err != nil {
		d.fail("after the faults nothing is written: %v", err)
	}
	if err := w.Close(); err != nil {
		d.fail("close: %v", err)
	}
	d.check(t)
}

func (d *simTrail) fail(format string, args ...any) {
	d.wrong = append(d.wrong, fmt.Sprintf(format, args...))
}

// call writes rows one after another, with all methods of the writer.
func (d *simTrail) call(ctx context.Context, w *audit.Writer, caller int) {
	for n := range simWrites {
		dice := d.dice.Of("caller " + strconv.Itoa(caller))
		time.Sleep(time.Duration(dice.Int64N(int64(2 * time.Second))))
		write := simWrite{caller: caller, names: []string{fmt.Sprintf("%d.%d", caller, n)}}
		ctx, cancel := context.WithCancel(ctx)
		if dice.IntN(5) == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(dice.Int64N(int64(3*time.Second))))
		}
		switch dice.IntN(3) {
		case 0:
			write.err = w.Write(ctx, named(write.names[0]))
		case 1:
			durable, err := w.Begin(ctx, named(write.names[0]))
			if write.err = err; err == nil {
				write.err = durable()
			}
		default:
			rows := []keyserver.AuditEntry{named(write.names[0])}
			for _, more := range []string{"b", "c"} {
				write.names = append(write.names, write.names[0]+more)
				rows = append(rows, named(write.names[0]+more))
			}
			write.err = w.WriteAll(ctx, rows)
		}
		cancel()
		d.trace.Say("%d: %s: %v", caller, write.names[0], write.err)
		d.mu.Lock()
		d.writes = append(d.writes, write)
		if write.err == nil && d.at(write.names[0]) < 0 {
			d.fail("%s was acknowledged before it was there", write.names[0])
		}
		d.mu.Unlock()
	}
}

// at returns the index of a row, or -1 if it is missing. The caller holds mu.
func (d *simTrail) at(name string) int {
	return slices.IndexFunc(d.rows, func(e keyserver.AuditEntry) bool { return e.Operation == name })
}

func (d *simTrail) check(t *testing.T) {
	last := make([]int, simCallers)
	for _, write := range d.writes {
		at := d.at(write.names[0])
		switch {
		case write.err == nil:
			d.acknowledged++
			if at < 0 {
				d.fail("%s was acknowledged and is not there", write.names[0])
			}
		case fault.CodeOf(write.err) == fault.Overloaded:
			d.refused++
			if at >= 0 {
				d.fail("%s was refused as too much and is there", write.names[0])
			}
		default: // the row may be present or missing
			d.refused++
		}
		for i, name := range write.names {
			if have := d.at(name); have >= 0 != (at >= 0) || have >= 0 && have != at+i {
				d.fail("%q belong together, and %s is at %d", write.names, name, have)
			}
		}
		if write.err == nil {
			if at < last[write.caller] {
				d.fail("%s is at %d, before one that %d had written earlier", write.names[0], at, write.caller)
			}
			last[write.caller] = at
		}
	}
	seen := map[string]bool{}
	for _, row := range d.rows {
		if seen[row.Operation] {
			d.fail("%s is there twice", row.Operation)
		}
		seen[row.Operation] = true
	}
	report, err := audit.Verify(t.Context(), d)
	if err != nil || !report.Intact() {
		d.fail("the chains do not hold: %+v, %v", report, err)
	}
}

func (d *simTrail) AuditSnapshot(context.Context) (audit.Snapshot, error) {
	n := int64(len(d.rows))
	return audit.Snapshot{LastSeq: n, MaxSeq: n, Heads: slices.DeleteFunc(slices.Clone(d.heads), func(h audit.Head) bool { return h.Position == 0 })}, nil
}

func (d *simTrail) AuditRange(_ context.Context, after, last int64, limit int) ([]keyserver.AuditEntry, error) {
	return d.rows[after:min(last, after+int64(limit))], nil
}

var errSimulated = errors.New("simulated")

// arrive simulates a call to the database: it may be late, or fail.
func (d *simTrail) arrive(ctx context.Context, dice *rand.Rand) error {
	d.mu.Lock()
	over := d.over
	d.mu.Unlock()
	if over {
		return nil
	}
	took := time.Duration(dice.Int64N(int64(20 * time.Millisecond)))
	switch dice.IntN(8) {
	case 0:
		took = time.Duration(dice.Int64N(int64(15 * time.Second))) // longer than the time limit of a commit
	case 1:
		return errSimulated
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(took):
		return nil
	}
}

// ClaimChain implements audit.Store. It returns a new chain each time, because an earlier call to a chain whose claim
// was lost may still take effect.
func (d *simTrail) ClaimChain(ctx context.Context) (audit.Chain, error) {
	if err := d.arrive(ctx, d.dice.Of("claim")); err != nil {
		d.trace.Say("claim: %v", err)
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heads = append(d.heads, audit.Head{Chain: int64(len(d.heads) + 1)})
	d.held = &simChain{d: d, index: len(d.heads) - 1}
	return d.held, nil
}

// writeOther writes a row of another process. The caller holds mu.
func (d *simTrail) writeOther() {
	if d.other == 0 {
		d.other = len(d.heads)
		d.heads = append(d.heads, audit.Head{Chain: int64(d.other + 1)})
	}
	head := &d.heads[d.other]
	row := named(fmt.Sprintf("other %d", head.Position))
	row.Seq, row.Chain, row.Position, row.Previous = int64(len(d.rows)+1), head.Chain, head.Position+1, head.Hash
	row.Hash, _ = audit.Sum(nil, &row)
	head.Position, head.Hash = row.Position, row.Hash
	d.rows = append(d.rows, row)
}

type simChain struct {
	d     *simTrail
	index int
}

func (c *simChain) Head(ctx context.Context) (audit.Head, error) {
	dice := c.d.dice.Of("head")
	if err := c.d.arrive(ctx, dice); err != nil {
		c.d.trace.Say("head: %v", err)
		return audit.Head{}, err
	}
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	if !c.d.over && dice.IntN(6) == 0 || c.d.held != c {
		c.d.held = nil
		return audit.Head{}, errors.New("the claim is lost")
	}
	return c.d.heads[c.index], nil
}

func (c *simChain) Append(ctx context.Context, after audit.Head, rows []keyserver.AuditEntry, seal func(int64) audit.Head) error {
	d := c.d
	dice := d.dice.Of("append")
	what := 0
	d.mu.Lock()
	if !d.over {
		what = dice.IntN(10)
	}
	d.mu.Unlock()
	if err := d.arrive(ctx, dice); err != nil {
		d.trace.Say("append: %v", err)
		return err
	}
	d.mu.Lock()
	if !d.over && dice.IntN(3) == 0 {
		d.writeOther()
	}
	first := int64(len(d.rows) + 1)
	head := seal(first)
	sent := slices.Clone(rows) // the writer reuses the slice after the return
	d.mu.Unlock()
	commit := func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if after != d.heads[c.index] || int64(len(d.rows)+1) != first {
			return errors.New("the chain does not end there")
		}
		d.heads[c.index] = head
		d.rows = append(d.rows, sent...)
		return nil
	}
	switch {
	case what == 9:
		later := time.Duration(dice.Int64N(int64(20 * time.Second)))
		d.ghosts.Go(func() {
			time.Sleep(later)
			d.trace.Say("append takes effect late: %v", commit())
		})
		return errSimulated
	case what == 8:
		d.trace.Say("append, answer lost: %v", commit())
		return errSimulated
	case d.forgets:
		return nil
	}
	return commit()
}

func (c *simChain) Release() error { return nil }
