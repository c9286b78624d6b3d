//go:build !windows

// These tests start a key server, which does not run on Windows.

package login_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zalando/go-keyring"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/ldap"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/ldap/ldaptest"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/cmdline"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig/tokens"
)

// user runs command lines with a separate home directory.
type user struct {
	t    *testing.T
	home string
}

func newUser(t *testing.T) *user {
	t.Helper()
	u := &user{t: t, home: t.TempDir()}
	u.at(u.home)
	return u
}

// at changes the home directory, as on another machine.
func (u *user) at(home string) {
	for _, name := range []string{"CONFIG_HOME", "STATE_HOME"} {
		u.t.Setenv("XDG_"+name, filepath.Join(home, strings.ToLower(name)))
	}
	u.t.Setenv("XDG_RUNTIME_DIR", filepath.Join(home, "runtime"))
	u.t.Setenv("HOME", home)
}

// ctl runs one command line, and returns its output, its error output and its exit code.
func (u *user) ctl(in string, args ...string) (out, said string, code int) {
	u.t.Helper()
	root, err := ctl.Command("ctl")
	if err != nil {
		u.t.Fatal(err)
	}
	root.SilenceErrors, root.SilenceUsage = true, true
	var stdout, stderr bytes.Buffer
	root.SetArgs(args)
	root.SetIn(strings.NewReader(in))
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	err = root.ExecuteContext(u.t.Context())
	var failure *cmdline.Failure
	switch {
	case errors.As(err, &failure):
		code = failure.Code
	case err != nil:
		code = 1
	}
	if err != nil {
		stderr.WriteString(err.Error())
	}
	return stdout.String(), stderr.String(), code
}

// must runs a command line that must succeed, and returns its output.
func (u *user) must(in string, args ...string) string {
	u.t.Helper()
	out, said, code := u.ctl(in, args...)
	if code != 0 {
		u.t.Fatalf("%s: %d %s", strings.Join(args, " "), code, said)
	}
	return out
}

func (u *user) file(name, content string) string {
	u.t.Helper()
	path := filepath.Join(u.home, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		u.t.Fatal(err)
	}
	return path
}

// login logs in as the administrator.
func (u *user) login(s *testserver.Server, more ...string) {
	u.t.Helper()
	u.must("", append([]string{"login", "--server", s.URL(), "--ca-file", s.CAFile(), "--password-file", u.file("password", testserver.AdminPassword+"\n")}, more...)...)
}

func TestLoginByPassword(t *testing.T) {
	s := testserver.Start(t)
	u := newUser(t)
	at := []string{"login", "--server", s.URL(), "--ca-file", s.CAFile()}
	for _, tc := range []struct {
		in, want string
		code     int
		args     []string
	}{
		{"", "--password-file is missing", 2, at},
		{"", "--password-file: is empty", 2, append(at, "--password-file", "-")},
		{"wrong", "INVALID_CREDENTIALS", 3, append(at, "--password-file", "-")},
		{"", "--token-file: the method ldap does not use it", 2, append(at, "--method", "ldap", "--token-file", "x")},
		{"", "--key is missing; give it with the method certificate", 2, append(at, "--certificate", "x")},
		{"", `--method is "saml"`, 2, append(at, "--method", "saml")},
		{"", "--server is missing", 2, []string{"login", "--password-file", "-"}},
		{"", "--server ends in /api", 2, []string{"login", "--server", s.URL() + "/api"}},
		{"x", "would send credentials without encryption", 2, []string{"login", "--server", "http://keys.example", "--password-file", "-"}},
		{"x", "give the CA certificate of the key server with --ca-file", 6, []string{"login", "--server", s.URL(), "--password-file", "-"}},
		{"x", "no response from the key server", 6, []string{"login", "--server", "https://127.0.0.1:1", "--password-file", "-"}},
		{"", "there is no session at", 3, []string{"roles", "list", "--server", s.URL()}},
	} {
		if out, said, code := u.ctl(tc.in, tc.args...); code != tc.code || !strings.Contains(said, tc.want) || out != "" {
			t.Errorf("%q: %d %q, want %d %q", tc.args, code, said, tc.code, tc.want)
		}
	}
	if left, err := filepath.Glob(filepath.Join(u.home, "*", "*", "*")); err != nil || left != nil {
		t.Errorf("a login that failed leaves %v", left)
	}

	if _, said, code := u.ctl(testserver.AdminPassword, append(at, "--password-file", "-")...); code != 0 || !strings.Contains(said, "as admin") {
		t.Fatalf("%d %s", code, said)
	}
	if got := u.must("", "whoami", "--field", "boundKey"); got == "\n" {
		t.Error("the session is bound to no key")
	}
	for _, name := range []string{"config_home/keyserver-operator/ctl.json", "state_home/keyserver-operator/default.session", "runtime/keyserver-operator/default.key"} {
		if info, err := os.Stat(filepath.Join(u.home, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	session := filepath.Join(u.home, "state_home/keyserver-operator/default.session")
	if err := os.Chmod(session, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, said, code := u.ctl("", "whoami"); code != 1 || !strings.Contains(said, "other users can read this file") {
		t.Errorf("%d %s", code, said)
	}
	if err := os.Chmod(session, 0o600); err != nil {
		t.Fatal(err)
	}
	// The next login ends the previous session.
	u.login(s)
	if got := strings.Count(u.must("", "sessions", "list", "--field", "id"), "\n"); got != 1 {
		t.Errorf("%d sessions are open", got)
	}
	u.must("", "logout")
	if left, _ := filepath.Glob(filepath.Join(u.home, "[rs]*", "*", "*")); left != nil {
		t.Errorf("a logout leaves %v", left)
	}
	if _, said, code := u.ctl("", "whoami"); code != 3 || !strings.Contains(said, "there is no session at") {
		t.Errorf("%d %s", code, said)
	}
}

// TestStolenSession checks that a stolen session file, for example from a backup, gives no access without the key of
// the session.
func TestStolenSession(t *testing.T) {
	s := testserver.Start(t)
	u := newUser(t)
	u.login(s)
	content, err := os.ReadFile(filepath.Join(u.home, "state_home/keyserver-operator/default.session"))
	if err != nil {
		t.Fatal(err)
	}

	thief := newUser(t)
	thief.login(s) // creates the files
	path := filepath.Join(thief.home, "state_home/keyserver-operator/default.session")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, said, code := thief.ctl("", "whoami"); code != 3 || !strings.Contains(said, "PROOF_KEY_MISMATCH") {
		t.Errorf("with a key of his own: %d %s", code, said)
	}
	if err := os.Remove(filepath.Join(thief.home, "runtime/keyserver-operator/default.key")); err != nil {
		t.Fatal(err)
	}
	if _, said, code := thief.ctl("", "whoami"); code != 3 || !strings.Contains(said, "bound to a key that no longer exists here") {
		t.Errorf("without one: %d %s", code, said)
	}
	var kept struct{ SessionID string }
	if err := json.Unmarshal(content, &kept); err != nil || kept.SessionID == "" {
		t.Fatal(err)
	}
	alone, err := client.New(client.Options{BaseURL: s.URL(), RootCAs: s.Pool(t), Credentials: client.HeldSession(schema.Secret(kept.SessionID), nil)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := alone.GetCurrentSession(t.Context()); !client.IsCode(err, "PROOF_REQUIRED") {
		t.Errorf("the session id alone: %v", err)
	}

	u.at(u.home)
	u.must("", "whoami")
	// The session is not sent to another server.
	if _, said, code := u.ctl("", "whoami", "--server", "https://other.example"); code != 3 || !strings.Contains(said, "is not sent to other servers") {
		t.Errorf("%d %s", code, said)
	}
}

func TestLoginByDirectory(t *testing.T) {
	d := ldaptest.Start(t)
	s := testserver.Start(t, func(c *server.Config) {
		c.Providers.LDAP = ldap.Config{URL: "ldap://" + d.Plain, CAFile: d.CAFile, UserDN: ldaptest.UserDN}
	})
	u := newUser(t)
	u.login(s)
	u.must("", "principals", "ldap", "create", "--name", ldaptest.Ann, "--role-ids", "")
	as := []string{"login", "--context", "ann", "--server", s.URL(), "--ca-file", s.CAFile(), "--method", "ldap", "--username", ldaptest.Ann, "--password-file", "-"}
	if _, said, code := u.ctl("wrong", as...); code != 3 || !strings.Contains(said, "INVALID_CREDENTIALS") {
		t.Errorf("%d %s", code, said)
	}
	u.must(ldaptest.AnnPassword, as...)
	if got := u.must("", "whoami", "--field", "kind"); got != "ldap\n" {
		t.Errorf("ann's is %q", got)
	}
	if got := u.must("", "--context", "default", "whoami", "--field", "kind"); got != "password\n" {
		t.Errorf("the administrator's is %q", got)
	}
	list := u.must("", "contexts", "list")
	if !strings.Contains(list, "* ann  ") || !strings.Contains(list, "  default  ") {
		t.Errorf("%s", list)
	}
	u.must("", "contexts", "use", "default")
	u.must("", "roles", "list")
	u.must("", "contexts", "remove", "ann")
	if _, said, code := u.ctl("", "contexts", "use", "ann"); code != 4 || !strings.Contains(said, "the contexts are: default") {
		t.Errorf("%d %s", code, said)
	}
}

func TestLoginByToken(t *testing.T) {
	u := newUser(t)
	const issuer, subject = "https://issuer.example", "system:serviceaccount:shop:till"
	tokenIssuer := tokens.NewIssuer(t, issuer, "keys")
	s := testserver.Start(t, func(c *server.Config) {
		c.Providers.OIDCIssuer, c.Providers.OIDCAudiences, c.Providers.OIDCKeysFile = issuer, []string{"keys"}, tokenIssuer.KeysFile
	})
	u.login(s)
	u.must("", "principals", "xauth", "create", "--name", "till", "--issuer", issuer, "--subject", subject, "--role-ids", "")
	token := tokenIssuer.Token(t, subject, time.Hour)
	if _, said, code := u.ctl("", "login", "--context", "till", "--server", s.URL(), "--ca-file", s.CAFile(), "--token-file", u.file("bad", "x.y.z")); code != 3 || !strings.Contains(said, "INVALID_CREDENTIALS") {
		t.Errorf("%d %s", code, said)
	}
	u.must("", "login", "--context", "till", "--server", s.URL(), "--ca-file", s.CAFile(), "--token-file", u.file("token", token))
	if got := u.must("", "whoami", "--field", "kind"); got != "kubernetes\n" {
		t.Errorf("got %q", got)
	}
}

func TestLoginByCertificate(t *testing.T) {
	s := testserver.Start(t)
	u := newUser(t)
	u.login(s)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "till"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	request := u.file("request.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr})))
	certificate := strings.TrimSpace(u.must("", "certificates", "issue", "--request-file", request, "--field", "certificate"))
	der, err := base64.StdEncoding.DecodeString(certificate)
	if err != nil {
		t.Fatal(err)
	}
	cert := u.file("cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	u.must("", "certificates", "enroll", "--certificates-file", cert, "--role-ids", "")
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	private := u.file("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})))
	u.must("", "login", "--context", "till", "--server", s.URL(), "--ca-file", s.CAFile(), "--certificate", cert, "--key", private)
	// The session is bound to the key and to the certificate. Each request uses both.
	if got := u.must("", "whoami", "--field", "kind"); got != "certificate\n" {
		t.Errorf("got %q", got)
	}
	if err := os.Remove(private); err != nil {
		t.Fatal(err)
	}
	if _, said, code := u.ctl("", "whoami"); code == 0 || !strings.Contains(said, "--key: ") {
		t.Errorf("%d %s", code, said)
	}
}

// TestKeyring checks that a keyring can store the key instead of a file. Without a keyring, login fails with a remedy,
// and no session stays open.
func TestKeyring(t *testing.T) {
	s := testserver.Start(t)
	u := newUser(t)
	keyring.MockInit()
	u.login(s, "--key-store", "keyring")
	if _, err := os.Stat(filepath.Join(u.home, "runtime")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a file for keys: %v", err)
	}
	u.must("", "whoami")
	u.must("", "logout")
	if _, err := keyring.Get("keyserver-operator ctl", "default"); !errors.Is(err, keyring.ErrNotFound) {
		t.Errorf("the key is still there: %v", err)
	}

	keyring.MockInitWithError(errors.New("no such service"))
	_, said, code := u.ctl(testserver.AdminPassword, "login", "--server", s.URL(), "--ca-file", s.CAFile(), "--password-file", "-", "--key-store", "keyring")
	if code != 1 || !strings.Contains(said, "--key-store file to store the key in a file") {
		t.Errorf("%d %s", code, said)
	}
	list, err := s.Admin(t).ListSessions(context.Background(), schema.SessionQuery{})
	if err != nil || list.Count != 1 { // the session of this request
		t.Errorf("%d sessions are open, %v", list.Count, err)
	}
}
