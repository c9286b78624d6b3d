// Package alerts tests the alerts of config/prometheus with promtool, on series like those of a key
// server and its manager: each alert fires and clears.
package alerts

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/promtool"
)

// ruleFile is the name of the rules in the tests.
const ruleFile = "rules.yaml"

// write writes rules and their tests into a directory for promtool.
func write(t *testing.T, rules, tests []byte) (dir string) {
	t.Helper()
	dir = t.TempDir()
	rig.Must(t, os.WriteFile(filepath.Join(dir, ruleFile), rules, 0o600))
	rig.Must(t, os.WriteFile(filepath.Join(dir, "alerts.yaml"), tests, 0o600))
	return dir
}

func cases(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "alerts.yaml"))
	rig.Must(t, err)
	return text
}

// TestAlerts checks that each alert fires at the right time, not before, and clears.
func TestAlerts(t *testing.T) {
	text, _ := rig.Alerts(t)
	dir := write(t, text, cases(t))
	for _, args := range [][]string{
		{"check", "rules", "--lint-fatal", filepath.Join(dir, ruleFile)},
		{"test", "rules", filepath.Join(dir, "alerts.yaml")},
	} {
		if said, err := promtool.Run(t, args...); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args[:2], " "), err, said)
		}
	}
}

// TestEachAlertHasATest checks that each alert is silent, fires and is silent again in a test with its name.
func TestEachAlertHasATest(t *testing.T) {
	_, names := rig.Alerts(t)
	var all struct {
		Tests []struct {
			Name           string
			PromqlExprTest []struct {
				Expr       string
				ExpSamples []any `json:"exp_samples"`
			} `json:"promql_expr_test"`
		}
	}
	rig.Must(t, yaml.Unmarshal(cases(t), &all))
	states := map[string][]bool{}
	for _, one := range all.Tests {
		if !slices.Contains(names, one.Name) {
			t.Errorf("the test %q is of no alert", one.Name)
		}
		for _, look := range one.PromqlExprTest {
			if want := `ALERTS{alertname="` + one.Name + `",alertstate="firing"}`; look.Expr != want {
				t.Errorf("the test %s asks for %s, want %s", one.Name, look.Expr, want)
			}
			states[one.Name] = append(states[one.Name], len(look.ExpSamples) > 0)
		}
	}
	for _, name := range names {
		if !slices.Equal(slices.Compact(states[name]), []bool{false, true, false}) {
			t.Errorf("%s has to be seen quiet, firing, and quiet again in testdata/alerts.yaml", name)
		}
	}
}

// TestARuleThatNeverFiresIsFound checks that promtool can fail.
func TestARuleThatNeverFiresIsFound(t *testing.T) {
	_, names := rig.Alerts(t)
	never := rig.ChangedAlerts(t, func(rule map[string]any) { rule["expr"] = "vector(1) > 2" })
	said, err := promtool.Run(t, "test", "rules", filepath.Join(write(t, never, cases(t)), "alerts.yaml"))
	if err == nil {
		t.Fatal("rules that never fire pass")
	}
	for _, name := range names {
		if !strings.Contains(said, name) {
			t.Errorf("nothing is said of %s, which does not fire", name)
		}
	}
}

// runbook is the URL of the page with a section for each alert.
const runbook = "https://github.com/keyserver-operator/keyserver-operator/blob/main/docs/runbook.md#"

// TestEachAlertHasASectionOfTheRunbook checks that each alert links to a section with all the
// required parts, and that each section belongs to an alert.
func TestEachAlertHasASectionOfTheRunbook(t *testing.T) {
	text, names := rig.Alerts(t)
	root, err := rig.Root()
	rig.Must(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "runbook.md"))
	rig.Must(t, err)
	sections := map[string]string{}
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		name, body, _ := strings.Cut(section, "\n")
		sections[name] = body
	}
	for _, name := range names {
		body, ok := sections[name]
		if !ok {
			t.Errorf("docs/runbook.md has no section %s", name)
			continue
		}
		for _, part := range []string{"**Means.**", "**People notice.**", "**Look first.**", "**Cure.**", "**Clears**"} {
			if !strings.Contains(body, part) {
				t.Errorf("the section %s has no %s", name, part)
			}
		}
	}
	for name := range sections {
		if !slices.Contains(names, name) {
			t.Errorf("the section %s of docs/runbook.md is of no alert", name)
		}
	}
	var all struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	rig.Must(t, yaml.Unmarshal(text, &all))
	for _, group := range all.Groups {
		for _, rule := range group.Rules {
			if got, want := rule.Annotations["runbook_url"], runbook+strings.ToLower(rule.Alert); got != want {
				t.Errorf("%s has the runbook_url %q, want %s", rule.Alert, got, want)
			}
		}
	}
}
