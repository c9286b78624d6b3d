// Package interop drives a real server with clients that nobody here wrote.
package interop

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/testserver"
)

// outcome is what one client saw.
type outcome struct {
	Client, Algorithm string
	Login             int
	Bound             bool // to the key's thumbprint, as the client works it out
	Without           string
	HMAC              int
	Replayed          string
	Whole             int
}

// TestProofClients: DPoP clients from the npm registry bind a session, use it,
// and are refused a proof that was used.
func TestProofClients(t *testing.T) {
	dir := install(t)
	s := testserver.Start(t)
	key, err := s.Admin(t).MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	if err != nil {
		t.Fatal(err)
	}
	out := run(t, dir, []string{
		"NODE_EXTRA_CA_CERTS=" + s.CAFile(), "NODE_NO_WARNINGS=1", "KEYSERVER_URL=" + s.URL(), "KEYSERVER_LINK=" + base64.StdEncoding.EncodeToString([]byte(key.TTag)),
		"KEYSERVER_NAME=" + testserver.AdminName, "KEYSERVER_PASSWORD=" + testserver.AdminPassword,
	}, "node", "proof.mjs")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 14 {
		t.Errorf("%d clients and algorithms reported, want 14", len(lines))
	}
	for _, line := range lines {
		var got outcome
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		want := outcome{
			Client: got.Client, Algorithm: got.Algorithm, Login: 200, Bound: true,
			Without: "PROOF_REQUIRED", HMAC: 200, Replayed: "PROOF_REPLAYED", Whole: 200,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s with %s:\n%s", got.Client, got.Algorithm, diff)
		}
	}
}

// install puts the clients, as the lock file pins them, into a directory.
func install(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%s is not installed, and the clients of this test run on it: run hack/node.sh, or install Node.js 20 or newer with npm", program)
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "proof.mjs"} {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, dir, nil, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	return dir
}

// run answers the standard output of a program that has to succeed.
func run(t *testing.T, dir string, env []string, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), env...), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", program, err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.String()
}
