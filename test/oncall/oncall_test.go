// Package oncall causes each alert of config/prometheus in real processes that a real Prometheus scrapes. It checks
// that the alert fires, applies the remedy in the section of docs/runbook.md, and checks that the alert clears.
// test/alerts checks the durations, which are shortened here.
package oncall

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
	"github.com/keyserver-operator/keyserver-operator/test/rig/need"
	"github.com/keyserver-operator/keyserver-operator/test/rig/prometheus"
)

var (
	built program.Program
	// settable is the program with a clock that a test can set.
	settable program.Program
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if controlplane.Missing() {
		return need.Suite(controlplane.Programs, controlplane.Remedy)
	}
	var err error
	if settable, err = program.BuildChanged(program.SettableClock); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = settable.Remove() }() // a leftover in the temporary directory fails no test
	return program.Main(m, &built, false)
}

// fault is a problem for which an alert fires.
type fault struct {
	alert string
	// labels are some of the labels that the alert must have.
	labels map[string]string
	// provoke causes the fault, and cure follows the runbook.
	provoke, cure func(t *testing.T)
}

// watch is a Prometheus with our rules. It scrapes only the processes of one test, so that these cause all alerts.
type watch struct{ *prometheus.Server }

// hurried returns the rules without their delays: an alert fires immediately, and rates over minutes become rates over
// ten seconds. Metrics and thresholds are unchanged.
func hurried(t *testing.T) []byte {
	t.Helper()
	return rig.ChangedAlerts(t, func(rule map[string]any) {
		delete(rule, "for")
		rule["expr"] = window.ReplaceAllString(rule["expr"].(string), "[10s]")
	})
}

var window = regexp.MustCompile(`\[\d+[mh]\]`)

func newWatch(t *testing.T, jobs map[string]string) watch {
	t.Helper()
	return watch{prometheus.Start(t, hurried(t), jobs)}
}

// goesThrough provokes a fault and cures it. It waits until the alert fires, and then until it clears.
func (w watch) goesThrough(t *testing.T, f fault) {
	rig.Succeeds(t, w.Healthy)
	rig.Succeeds(t, func() error { return w.ended(f.alert) })
	f.provoke(t)
	rig.Succeeds(t, func() error { return w.fires(t, f) })
	f.cure(t)
	rig.Succeeds(t, func() error { return w.ended(f.alert) })
}

func (w watch) ended(alert string) error {
	firing, err := w.Firing(alert)
	if err == nil && len(firing) > 0 {
		err = fmt.Errorf("%s fires: %v", alert, firing)
	}
	return err
}

// fires returns an error unless the alert fires. The annotations of the alert must be complete.
func (w watch) fires(t *testing.T, f fault) error {
	firing, err := w.Firing(f.alert)
	if err != nil {
		return err
	}
	for _, a := range firing {
		for name, text := range a.Annotations {
			if text == "" || strings.Contains(text, "<no value>") || strings.Contains(text, "error expanding") {
				t.Errorf("%s has the %s %q", f.alert, name, text)
			}
		}
		matches := true
		for name, value := range f.labels {
			matches = matches && a.Labels[name] == value
		}
		if matches {
			t.Logf("%s", a.Annotations["summary"])
			return nil
		}
	}
	return fmt.Errorf("%s with %v does not fire: %v", f.alert, f.labels, firing)
}

// TestEachAlertIsProvoked checks that the tests cause exactly the alerts of the rules.
func TestEachAlertIsProvoked(t *testing.T) {
	_, want := rig.Alerts(t)
	var got []string
	got = append(got, alertsOfManagers...)
	for _, h := range houses {
		got = append(got, h.alert)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("provoked are\n%q, and the rules have\n%q", got, want)
	}
}
