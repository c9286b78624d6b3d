package rig

import (
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"
)

// Alerts are the rules that we ship, as Prometheus takes them, and their names.
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
