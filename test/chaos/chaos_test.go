// Package chaos runs key servers, their databases and peers, a cluster and its manager
// as processes of their own, lets clients work on them without a pause, breaks something
// at random, again and again, and holds everything to what it had acknowledged
// (docs/adr/0057-chaos.md).
//
// A run is rounds. In each, faults are drawn, injected and healed under load; then the
// load ends, and everything is read back and compared. What is drawn follows from
// CHAOS_SEED, which is printed; how processes meet each other does not, so that a replay
// is another try of the same plan. CHAOS_TIME is for how long rounds begin. CHAOS_PARTS
// and CHAOS_FAULTS leave something out.
package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// built is the program that is broken.
var built program.Program

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	defer func() { _ = built.Remove() }() // a leftover in the temporary directory fails no test
	return m.Run()
}

// build builds the program for a machine whose clock can be set, unless it is there
// already, with a mistake in it.
var build = sync.OnceValue(func() (err error) {
	if path := os.Getenv(programVariable); path != "" {
		built = program.At(path)
		return nil
	}
	built, err = program.BuildChanged(program.SettableClock)
	return err
})

// The variables that set a run.
const (
	seedVariable = "CHAOS_SEED"
	timeVariable = "CHAOS_TIME"
	// programVariable names a program that a mistake was planted in.
	programVariable = "CHAOS_PROGRAM"
	// partsVariable names the parts of the whole that run: all where it is empty.
	partsVariable = "CHAOS_PARTS"
	// faultsVariable is an expression for the names of the faults that are drawn.
	faultsVariable = "CHAOS_FAULTS"
)

// The parts of the whole.
const (
	embeddedPart   = "embedded"
	replicatedPart = "replicated"
	managerPart    = "manager" // in front of the first of the others
)

// run is one run of the suite: what it draws from, and how long it breaks things.
type run struct {
	*rand.Rand
	seed  uint64
	time  time.Duration
	parts []string
	draws *regexp.Regexp // nil for every fault
}

// begin reads the variables, and prints how this very plan is tried again: now, and
// below each failure.
func begin(t *testing.T) *run {
	t.Helper()
	text := os.Getenv(timeVariable)
	if text == "" {
		t.Skipf("%s is not set: make chaos runs it, with nothing beside it that takes the machine's time", timeVariable)
	}
	lasts, err := time.ParseDuration(text)
	rig.Must(t, err)
	rig.Must(t, build())
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv(seedVariable); text != "" {
		seed, err = strconv.ParseUint(text, 10, 64)
		rig.Must(t, err)
	}
	again := fmt.Sprintf("replay with: %s=%d %s=%s", seedVariable, seed, timeVariable, lasts)
	for _, name := range []string{partsVariable, faultsVariable} {
		if text := os.Getenv(name); text != "" {
			again += fmt.Sprintf(" %s=%q", name, text)
		}
	}
	again += " make chaos"
	t.Log(again)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(again)
		}
	})
	draws, err := regexp.Compile(os.Getenv(faultsVariable))
	if err != nil {
		t.Fatalf("%s is no expression for names of faults: %v", faultsVariable, err)
	}
	return &run{rand.New(rand.NewPCG(seed, 0)), seed, lasts, partsOf(t), draws}
}

// partsOf reads what is to run.
func partsOf(t *testing.T) []string {
	t.Helper()
	known := []string{embeddedPart, replicatedPart, managerPart}
	parts := strings.Fields(os.Getenv(partsVariable))
	for _, part := range parts {
		if !slices.Contains(known, part) {
			t.Fatalf("%s names %q: it is some of %s, with spaces between", partsVariable, part, strings.Join(known, ", "))
		}
	}
	switch {
	case len(parts) == 0:
		return known
	case !slices.Contains(parts, embeddedPart) && !slices.Contains(parts, replicatedPart):
		t.Fatalf("%s has no key server: it takes %s or %s", partsVariable, embeddedPart, replicatedPart)
	}
	return parts
}

func (r *run) has(part string) bool { return slices.Contains(r.parts, part) }

// of is a source of chance of its own, so that who draws from it draws the same
// however often others have drawn.
func (r *run) of(round, who int) *rand.Rand {
	return rand.New(rand.NewPCG(r.seed, uint64(round)<<16|uint64(who)))
}

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

// TestChaos is the suite.
func TestChaos(t *testing.T) {
	r := begin(t)
	w := newWorld(t, r)
	rounds, end := 0, time.Now().Add(r.time)
	for ; rounds == 0 || time.Now().Before(end) && !t.Failed(); rounds++ {
		w.round(t, rounds, w.plan(r))
	}
	if !t.Failed() {
		w.round(t, rounds, nil) // undisturbed: what the processes keep of it is a leak
	}
	w.finish(t)
	t.Logf("%d rounds; faults: %s", rounds, strings.Join(w.done, ", "))
}
