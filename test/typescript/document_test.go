package typescript

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/markdown"
	"github.com/keyserver-operator/keyserver-operator/test/rig/node"
)

// TestDocuments follows the documents as a user with a checkout, "make run" and Node.js: it runs
// the commands in one terminal, and saves the code in files.
func TestDocuments(t *testing.T) {
	s := testserver.Start(t)
	admin := s.Admin(t)
	for _, page := range []struct {
		name  string
		file  string // file name of the code, relative to the working directory
		shows string
	}{
		{"clients/typescript/README.md", "mac.mjs", "(?m)^MAC: [A-Za-z0-9+/]{64}\nvalid: true$"},
		{"docs/start/application-developer.md", "your-project/verify.mjs", "(?m)^valid: true, by generation 1$"},
	} {
		t.Run(page.name, func(t *testing.T) {
			key, err := admin.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
			rig.Must(t, err)
			answer, err := admin.MAC(t.Context(), key.TTag, strings.NewReader("a message"))
			rig.Must(t, err)
			_, err = admin.RotateKey(t.Context(), schema.KeyRequest{TTag: key.TTag}) // the page rotates the key earlier
			rig.Must(t, err)
			mac, err := answer.MAC.MarshalText()
			rig.Must(t, err)

			checkout := checkoutOf(t, s)
			text := read(t, page.name)
			if !strings.Contains(text, "`"+page.file+"`") {
				t.Errorf("nobody is told to save the code as %s", page.file)
			}
			var commands strings.Builder
			for _, b := range markdown.Fences(text) {
				switch {
				case b.Language == "js":
					code := strings.ReplaceAll(b.Text, "https://127.0.0.1:8443", s.URL())
					commands.WriteString("cat > " + page.file + " <<'end of the code'\n" + code + "end of the code\n")
				case b.Language == "sh" && (b.NotRun != "" || !strings.HasPrefix(page.name, "docs/")): // test/e2e runs the others
					commands.WriteString(b.Text)
				}
			}
			// The lock file pins the packages, and hack/npm.sh has already downloaded them.
			said := node.Run(t, checkout, []string{
				"npm_config_prefer_offline=true", "npm_config_audit=false", "npm_config_fund=false", "npm_config_update_notifier=false",
				"KEY=" + key.TTag.String(), "MAC=" + string(mac),
			}, "bash", "-euo", "pipefail", "-c", commands.String())
			if !regexp.MustCompile(page.shows).MatchString(said) {
				t.Errorf("nobody is shown %q, but\n%s", page.shows, said)
			}
		})
	}
}

// checkoutOf makes the parts of a checkout that the commands need, with the files of a key server
// that "make run" started.
func checkoutOf(t *testing.T, s *testserver.Server) string {
	t.Helper()
	dir := t.TempDir()
	copied(t, filepath.Join(dir, "clients", "typescript"))
	state := filepath.Join(dir, ".keyserver", "server")
	rig.Must(t, os.MkdirAll(state, 0o700))
	rig.Must(t, os.WriteFile(filepath.Join(state, "ca.crt"), s.CA(t), 0o600))
	rig.Must(t, os.WriteFile(filepath.Join(state, "bootstrap-password"), []byte(testserver.AdminPassword+"\n"), 0o600))
	return dir
}

func read(t *testing.T, name string) string {
	t.Helper()
	root, err := rig.Root()
	rig.Must(t, err)
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	rig.Must(t, err)
	return string(text)
}
