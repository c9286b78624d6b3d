package secrets

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// bundle creates a support bundle with everything that it can contain about the server, and searches it for the planted
// values. The log has lines with secrets that the program itself never writes.
func (r *run) bundle(t *testing.T, metrics string) {
	t.Helper()
	dir := t.TempDir()
	careless := r.server.Log()
	for value, what := range r.all() {
		if strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' }) {
			continue // bytes of a key, which no log has unencoded
		}
		switch what {
		case "session id", "token":
			careless += "request with Authorization: Bearer " + value + "\n"
		case "proof":
			careless += `{"headers":{"Dpop":["` + value + `"]}}` + "\n"
		default:
			careless += `{"time":"2026-11-25T21:57:38Z","level":"INFO","msg":"careless","password":"` + value + `"}` + "\n" + "password: " + value + "\nconnect to postgres://someone:" + url.PathEscape(value) + "@db.example/keys\n" + `{"secret":"` + value + `"}` + "\n"
		}
	}
	log, out := filepath.Join(dir, "serve.log"), filepath.Join(dir, "bundle.tar.gz")
	if err := os.WriteFile(log, []byte(careless), 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := built.Named("keyserverctl").Run("support-bundle", "--server", "https://"+r.server.Address, "--ca-file", filepath.Join(r.server.DataDir, "ca.crt"),
		"--password-file", r.passwordFile, "--metrics-url", metrics, "--log", log, "--output", out)
	if err != nil || !strings.Contains(said, " 0 are missing or incomplete") {
		t.Fatalf("%v: %s", err, said)
	}
	r.nowhere(t, "what support-bundle prints", []byte(said))
	packed, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	files := rig.Unpacked(t, packed)
	for name, file := range files {
		if strings.HasSuffix(name, "serve.log") && (!strings.Contains(file.Text, `"msg":"careless"}`) || !strings.Contains(file.Text, `"msg":"started"`)) {
			t.Errorf("the log has not the lines of ours: %s", rig.Shorten(file.Text))
		}
		r.nowhere(t, "the file "+name+" of a support bundle", []byte(file.Text+name))
	}
	if len(files) < 8 {
		t.Errorf("the bundle has %d files", len(files))
	}
}
