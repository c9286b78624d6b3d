// Package chaos runs key servers, their databases and peers, a cluster and its manager as separate processes. Clients
// use them without a pause while random faults occur. Then the tests check everything that was acknowledged
// (docs/adr/0057-chaos.md).
//
// A run has rounds. Each round draws random faults, injects them under load, and heals them. Then the load ends, and
// the test reads the state and compares it. CHAOS_SEED, which is printed, determines the random choices, but not the
// timing of the processes. So a replay tries the same plan, but can have another result. CHAOS_TIME is the time during
// which rounds begin. CHAOS_PARTS and CHAOS_FAULTS select parts and faults.
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

// built is the tested program.
var built program.Program

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	defer func() { _ = built.Remove() }() // a leftover in the temporary directory fails no test
	return m.Run()
}

// build builds the program with a settable clock, unless programVariable names a program with a planted mistake.
var build = sync.OnceValue(func() (err error) {
	if path := os.Getenv(programVariable); path != "" {
		built = program.At(path)
		return nil
	}
	built, err = program.BuildChanged(program.SettableClock)
	return err
})

// The variables that configure a run.
const (
	seedVariable = "CHAOS_SEED"
	timeVariable = "CHAOS_TIME"
	// programVariable names a program with a planted mistake.
	programVariable = "CHAOS_PROGRAM"
	// partsVariable names the parts that run: all if it is empty.
	partsVariable = "CHAOS_PARTS"
	// faultsVariable is a regular expression for the names of the faults that are drawn.
	faultsVariable = "CHAOS_FAULTS"
)

// The parts of the suite.
const (
	embeddedPart   = "embedded"
	replicatedPart = "replicated"
	managerPart    = "manager" // placed before the name of an embedded or replicated part
)

// run is one run of the suite: its random source, and how long it injects faults.
type run struct {
	*rand.Rand
	seed  uint64
	time  time.Duration
	parts []string
	draws *regexp.Regexp // nil for every fault
}

// begin reads the variables. It prints how to run the same plan again, now and after each failure.
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

// partsOf returns the parts that run.
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

// of returns a separate random source. Its values do not depend on how many values other sources have drawn.
func (r *run) of(round, who int) *rand.Rand {
	return rand.New(rand.NewPCG(r.seed, uint64(round)<<16|uint64(who)))
}

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

func TestChaos(t *testing.T) {
	r := begin(t)
	w := newWorld(t, r)
	rounds, end := 0, time.Now().Add(r.time)
	for ; rounds == 0 || time.Now().Before(end) && !t.Failed(); rounds++ {
		w.round(t, rounds, w.plan(r))
	}
	if !t.Failed() {
		w.round(t, rounds, nil) // without faults: resources that remain allocated after it are a leak
	}
	w.finish(t)
	t.Logf("%d rounds; faults: %s", rounds, strings.Join(w.done, ", "))
}
