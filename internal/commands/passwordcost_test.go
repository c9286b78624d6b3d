package commands

import (
	"context"
	"crypto/x509"
	"database/sql"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// shippedCost is the prefix of each hash that a key server stores.
const shippedCost = "$argon2id$v=19$m=19456,t=2,p=1$"

// TestServeStoresTheShippedCost: each stored hash has the shipped cost, at the first start, for a new
// principal, and for a principal that has logged in.
func TestServeStoresTheShippedCost(t *testing.T) {
	root, err := program.Program{Name: programName, Root: newRoot}.Commands(nil)
	rig.Must(t, err)
	dir := filepath.Join(t.TempDir(), "data")
	root.SetArgs([]string{"serve", "--data-dir", dir, "--listen=127.0.0.1:0", "--external-listen=", "--deployment=split"})
	useServer(t, root, dir)
	hashes := hashesIn(t, dir)
	if len(hashes) != 3 {
		t.Errorf("%d principals have a password", len(hashes))
	}
	for _, hash := range hashes {
		if !strings.HasPrefix(hash, shippedCost) {
			t.Errorf("the hash %s is stored", hash)
		}
	}
}

// useServer runs serve, logs in, creates a principal, logs in as that principal, and stops serve.
func useServer(t *testing.T, root *cobra.Command, dir string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out, errOut rig.Output
	root.SetOut(&out)
	root.SetErr(&errOut)
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	ready := func() string {
		_, after, _ := strings.Cut(out.String(), "ready: ")
		url, _, _ := strings.Cut(after, " ")
		return url
	}
	for more := out.Grown(); ready() == ""; more = out.Grown() {
		select {
		case err := <-ended:
			t.Fatalf("serve ended: %v\n%s", err, errOut.String())
		case <-more:
		}
	}
	first, err := os.ReadFile(filepath.Join(dir, "bootstrap-password"))
	rig.Must(t, err)
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	rig.Must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	as := func(name, password string) *client.Client {
		c, err := client.New(client.Options{
			BaseURL: ready(), RootCAs: roots,
			Credentials: client.PasswordCredentials(name, func(context.Context) (string, error) { return password, nil }),
		})
		rig.Must(t, err)
		return c
	}
	const password = "a password of some length"
	_, err = as("admin", strings.TrimSpace(string(first))).CreatePasswordPrincipal(ctx, schema.CreatePasswordPrincipalRequest{
		Name: "user", Password: password, RoleIDs: []schema.HexID{},
	})
	rig.Must(t, err)
	_, err = as("user", password).GetCurrentSession(ctx)
	rig.Must(t, err)
	stop()
	if err := <-ended; err != nil {
		t.Errorf("serve ended: %v", err)
	}
}

func hashesIn(t *testing.T, dir string) (hashes []string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, sqlite.DatabaseFile))
	rig.Must(t, err)
	defer func() { rig.Must(t, db.Close()) }()
	rows, err := db.QueryContext(t.Context(), `SELECT password_hash FROM principals WHERE password_hash IS NOT NULL`)
	rig.Must(t, err)
	defer func() { rig.Must(t, rows.Close()) }()
	for rows.Next() {
		var hash string
		rig.Must(t, rows.Scan(&hash))
		hashes = append(hashes, hash)
	}
	rig.Must(t, rows.Err())
	return hashes
}

// knowsCost are the non-test files that may name the field PasswordCost, or the cost for tests. They copy the field
// from server.Config, or support tests. No file of internal/commands is allowed.
var knowsCost = []string{
	"internal/auth/session/account.go",
	"internal/auth/session/manager.go",
	"internal/auth/session/password.go",
	"internal/engine/bootstrap/bootstrap.go",
	"internal/engine/engine.go",
	"internal/engine/enginetest/enginetest.go",
	"internal/engine/principal.go",
	"internal/server/config.go",
	"internal/server/server.go",
	"internal/server/start.go",
	"internal/server/testserver/testserver.go",
}

var (
	costNames   = regexp.MustCompile(`\bPasswordCost\b|/passwordtest"`)
	environment = regexp.MustCompile(`\b(Getenv|LookupEnv|Environ|ExpandEnv)\(`)
)

// TestNoProgramSetsThePasswordCost checks that no command can set another cost, for example by a flag of up, which a
// test of serve does not detect. The files in knowsCost must read no environment variable.
func TestNoProgramSetsThePasswordCost(t *testing.T) {
	root, err := rig.Root()
	rig.Must(t, err)
	var found []string
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		if environment.Match(text) && (strings.HasPrefix(name, "internal/crypto/password/") || slices.Contains(knowsCost, name)) {
			t.Errorf("%s reads the environment", name)
		}
		if costNames.Match(text) {
			found = append(found, name)
		}
		return nil
	})
	rig.Must(t, err)
	if !slices.Equal(found, knowsCost) {
		t.Errorf("these files name PasswordCost: %v", found)
	}
}
