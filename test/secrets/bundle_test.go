package secrets

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// bundle packs all that support-bundle can have of the server, with a log into which
// somebody has written what no line of ours has, and looks through it.
func (r *run) bundle(t *testing.T, metrics string) {
	t.Helper()
	dir := t.TempDir()
	careless := r.server.Log()
	for value, what := range r.all() {
		if strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' }) {
			continue // bytes of a key, which no log has as they are
		}
		switch what {
		case "session id", "token":
			careless += "request with Authorization: Bearer " + value + "\n"
		case "proof":
			careless += `{"headers":{"Dpop":["` + value + `"]}}` + "\n"
		default:
			careless += "password: " + value + "\nconnect to postgres://someone:" + url.PathEscape(value) + "@db.example/keys\n" + `{"secret":"` + value + `"}` + "\n"
		}
	}
	log, out := filepath.Join(dir, "serve.log"), filepath.Join(dir, "bundle.tar.gz")
	if err := os.WriteFile(log, []byte(careless), 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := built.Run("support-bundle", "--server", "https://"+r.server.Address, "--ca-file", filepath.Join(r.server.DataDir, "ca.crt"),
		"--password-file", r.passwordFile, "--metrics-url", metrics, "--log", log, "--output", out)
	if err != nil || !strings.Contains(said, " 0 could not be had") {
		t.Fatalf("%v: %s", err, said)
	}
	r.nowhere(t, "what support-bundle prints", []byte(said))
	packed, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	zip, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for from := tar.NewReader(zip); ; files++ {
		header, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(from)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(header.Name, "serve.log") && !strings.Contains(string(text), "[crossed out]") {
			t.Error("nothing in the log was crossed out")
		}
		r.nowhere(t, "the file "+header.Name+" of a support bundle", append(text, header.Name...))
	}
	if files < 8 {
		t.Errorf("the bundle has %d files", files)
	}
}
