package rig

import (
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"
)

// Alerts returns the shipped alert rules in the format of Prometheus, and their names.
func Alerts(t testing.TB) (groups []byte, names []string) {
	t.Helper()
	root, err := Root()
	Must(t, err)
	text, err := os.ReadFile(filepath.Join(root, "config", "prometheus", "rules.yaml"))
	Must(t, err)
	var resource struct{ Spec map[string]any }
	Must(t, yaml.Unmarshal(text, &resource))
	groups, err = yaml.Marshal(resource.Spec)
	Must(t, err)
	var all struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	Must(t, yaml.Unmarshal(groups, &all))
	for _, group := range all.Groups {
		for _, rule := range group.Rules {
			names = append(names, rule.Alert)
		}
	}
	if len(names) == 0 {
		t.Fatal("there are no alerts, so nothing is shown")
	}
	return groups, names
}

// ChangedAlerts returns the shipped alert rules after change was called for each rule.
func ChangedAlerts(t testing.TB, change func(rule map[string]any)) []byte {
	t.Helper()
	text, _ := Alerts(t)
	var all struct {
		Groups []struct {
			Name  string           `json:"name"`
			Rules []map[string]any `json:"rules"`
		} `json:"groups"`
	}
	Must(t, yaml.Unmarshal(text, &all))
	for _, group := range all.Groups {
		for _, rule := range group.Rules {
			change(rule)
		}
	}
	text, err := yaml.Marshal(all)
	Must(t, err)
	return text
}
