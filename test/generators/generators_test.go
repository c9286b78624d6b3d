// Package generators tests that generators of clients understand the OpenAPI document.
package generators

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/markdown"
	"github.com/keyserver-operator/keyserver-operator/test/rig/node"
)

var built program.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m, &built, false)) }

// TestGeneratedClients generates the clients with the commands of the guide, compiles them, and computes the same
// MAC with each.
func TestGeneratedClients(t *testing.T) {
	dir := t.TempDir()
	// This copies the packages, because openapi-ts looks for tsconfig.json above its own file.
	rig.Must(t, os.CopyFS(filepath.Join(dir, "node_modules"), os.DirFS(node.Packages(t, "."))))
	root, err := rig.Root()
	rig.Must(t, err)
	rig.Must(t, os.CopyFS(dir, os.DirFS("testdata")))
	rig.Must(t, os.CopyFS(dir, os.DirFS(filepath.Join(root, "test/thirdparty/generators"))))
	for name, from := range map[string]string{"openapi.json": filepath.Join(root, "docs/openapi.json"), "package.json": "package.json"} {
		text, err := os.ReadFile(from)
		rig.Must(t, err)
		rig.Must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}

	page, err := os.ReadFile(filepath.Join(root, "docs/guides/generate-a-client.md"))
	rig.Must(t, err)
	for _, b := range markdown.Blocks(string(page)) {
		if b.NotRun == "" {
			node.Run(t, dir, nil, "bash", "-euo", "pipefail", "-c", b.Text)
		}
	}
	node.Run(t, dir, nil, "npx", "tsc", "-p", ".")
	node.Run(t, dir, []string{"CGO_ENABLED=0"}, "go", "build", "-o", "out/", "./oapi-codegen", "./ogen-client")

	s, err := built.Serve(t.TempDir())
	rig.Must(t, err)
	t.Cleanup(s.Kill)
	admin := s.Admin(t, program.NoRetries)
	key, err := admin.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	rig.Must(t, err)
	answer, err := admin.MAC(t.Context(), key.TTag, strings.NewReader("hello"))
	rig.Must(t, err)
	want, err := answer.MAC.MarshalText()
	rig.Must(t, err)
	lineage, err := key.TTag.MarshalText()
	rig.Must(t, err)
	password, err := s.Password()
	rig.Must(t, err)
	authorities := filepath.Join(s.DataDir, "ca.crt")
	for _, command := range [][]string{{"out/oapi-codegen"}, {"out/ogen-client"}, {"node", "out/openapi-typescript.js"}, {"node", "out/hey-api.js"}} {
		got := node.Run(t, dir, []string{
			"SSL_CERT_FILE=" + authorities, "NODE_EXTRA_CA_CERTS=" + authorities, "NODE_NO_WARNINGS=1",
			"KEYSERVER_URL=https://" + s.Address, "KEYSERVER_NAME=admin", "KEYSERVER_PASSWORD=" + password, "KEYSERVER_LINEAGE=" + string(lineage),
		}, command[0], command[1:]...)
		if strings.TrimSpace(got) != string(want) {
			t.Errorf("%s printed %q, want the MAC %s", command, got, want)
		}
	}
}
