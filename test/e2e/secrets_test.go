package e2e

import (
	"encoding/base64"
	"strings"
	"testing"
)

// secrets checks the manager's password and a rejected password. Neither is in the manager's log, in an event, or in an
// object other than its Secret.
func (w *world) secrets(t *testing.T) {
	wrong := *w.installation
	wrong.name, wrong.password = "mistaken", "a password that nobody has: 9WzHGSXxZ3"
	wrong.declare(t, w.cluster)
	w.wait(t, "keyserver/mistaken", "Ready=False")

	log := w.manager.Log()
	if !strings.Contains(log, `"level":"DEBUG"`) {
		t.Fatalf("the manager logs too little to show anything:\n%.1000s", log)
	}
	seen := map[string]string{
		"the manager's log": log,
		"the events":        w.kubectl(t, "", "get", "events", "-A", "-o", "yaml"),
		"the objects":       w.kubectl(t, "", "get", "trust,leases,configmaps", "-A", "-o", "yaml"),
	}
	for where, text := range seen {
		for _, secret := range []string{w.password, wrong.password} {
			for _, spelling := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret))} {
				if strings.Contains(text, spelling) {
					t.Errorf("%s show a password", where)
				}
			}
		}
	}
}
