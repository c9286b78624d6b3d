// Package secrets runs the program with secrets that no other text contains. It uses and abuses
// every route with them, makes the program crash, and searches for them in everything that it
// printed, sent, measured, recorded and stored.
package secrets

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/ldap/ldaptest"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/migrated"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig/tokens"
)

var built program.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m, &built, true)) }

// run is one process with its planted values.
type run struct {
	*planted
	server *program.Server
	http   *http.Client
	admin  *client.Client
	bearer string // id of an unbound session

	passwordFile string // of admin

	issuer    *tokens.Issuer
	directory *ldaptest.Server
}

func TestNothingShowsASecret(t *testing.T) {
	databases := map[string]func(t *testing.T) (args []string, password string){
		"SQLite": func(*testing.T) ([]string, string) { return nil, "" },
		"PostgreSQL": func(t *testing.T) ([]string, string) {
			// The server needs no password on a socket, but the URL has one for the test.
			password := word(t)
			at := migrated.Database(t)
			u, err := url.Parse(at)
			if err != nil {
				t.Fatal(err)
			}
			u.User = url.UserPassword(u.User.Username(), password)
			return []string{"--database-url", u.String()}, password
		},
	}
	for name, database := range databases {
		t.Run(name, func(t *testing.T) {
			args, password := database(t)
			r := start(t, args, password)
			r.use(t)
			r.abuse(t)
			r.searchOutputs(t)
		})
	}
}

func start(t *testing.T, args []string, databasePassword string) *run {
	t.Helper()
	dir := t.TempDir()
	r := &run{planted: &planted{values: map[string]string{}}}
	if databasePassword != "" {
		r.add("database password", databasePassword)
	}
	admin, kek := word(t), draw(t, 32)
	r.add("password of admin", admin)
	r.add("key-encryption key", string(kek))
	passwordFile := filepath.Join(dir, "password")
	if err := os.WriteFile(passwordFile, []byte(admin+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.passwordFile = passwordFile
	args = append(args, r.providers(t, dir)...)
	args = append(args, "--bootstrap-password-file", passwordFile, "--kek", "base64key://"+base64.URLEncoding.EncodeToString(kek),
		"--log-level", "debug", "--metrics-listen", "127.0.0.1:0")
	var err error
	if r.server, err = built.Serve(filepath.Join(dir, "data"), args...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.server.Kill)
	transport := program.Connect(t, r.server.DataDir, func() string { return r.server.Address })
	r.http = &http.Client{Transport: collector{transport, r.planted}, Timeout: time.Minute}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r.admin, err = client.New(client.Options{
		BaseURL: program.BaseURL, ProofURL: "https://" + r.server.Address, HTTPClient: r.http, ProofKey: key,
		Credentials: client.PasswordCredentials("admin", func(context.Context) (string, error) { return admin, nil }),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// collector adds the credentials that a client sends to the planted values: session ids and proofs.
type collector struct {
	http.RoundTripper
	planted *planted
}

func (c collector) RoundTrip(req *http.Request) (*http.Response, error) {
	for header, what := range map[string]string{"Authorization": "session id", "Dpop": "proof"} {
		if value := req.Header.Get(header); value != "" {
			c.planted.add(what, value[strings.LastIndexByte(value, ' ')+1:])
		}
	}
	return c.RoundTripper.RoundTrip(req)
}

// use sends valid requests with secrets.
func (r *run) use(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	material := draw(t, 48)
	r.add("key", string(material))
	imported := schema.Base64(material)
	key, err := r.admin.MintKey(ctx, schema.MintKeyRequest{Algorithm: "HMAC-SHA384", Material: &imported})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.admin.HMAC(ctx, key.TTag, strings.NewReader("message")); err != nil {
		t.Fatal(err)
	}
	agent, recipient := r.agent(t)
	exported, err := r.admin.ExportKey(ctx, schema.ExportKeyRequest{TTag: key.TTag, SystemID: 1, PrincipalID: recipient})
	if err != nil || exported.JWE == "" {
		t.Fatalf("exported as %+v, %v", exported, err)
	}
	r.nowhere(t, "the answer to an export", encode(t, exported))
	r.logins(t, agent, key.TTag)
}

// abuse sends a secret in each input of a route, and searches each response.
func (r *run) abuse(t *testing.T) {
	t.Helper()
	_, text := r.send(t, "GET", "/api/openapi.json", "", nil)
	var document struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(text, &document); err != nil || len(document.Paths) == 0 {
		t.Fatalf("no routes: %v", err)
	}
	stray := word(t)
	r.add("stray value", stray)
	for _, path := range slices.Sorted(maps.Keys(document.Paths)) {
		for method := range document.Paths[path] {
			for what, send := range abuses(path, stray) {
				if send.header == nil {
					send.header = http.Header{"Authorization": {"Bearer " + r.bearer}}
				}
				status, answer := r.send(t, strings.ToUpper(method), send.path, send.body, send.header)
				if status == http.StatusInternalServerError {
					t.Errorf("%s %s with %s: %d", method, path, what, status)
				}
				r.nowhere(t, fmt.Sprintf("%s %s with %s", method, path, what), answer)
			}
		}
	}
}

type abuse struct {
	path, body string
	header     http.Header
}

var parameter = regexp.MustCompile(`\{[^}]*\}`)

// abuses are requests that every route rejects, so that none has an effect. They do not use secrets as names, because
// the error has to repeat a misspelt name.
func abuses(path, stray string) map[string]abuse {
	plain := parameter.ReplaceAllString(path, "0000000000000001")
	all := map[string]abuse{
		"a secret in the query":     {path: plain + "?token=" + stray},
		"a secret as the body":      {path: plain, body: stray},
		"a secret as a value":       {path: plain, body: `{"ttag":"` + stray + `","hiddenLink":"` + stray + `","certificate":"` + stray + `","password":["` + stray + `"]}`},
		"a secret as a session id":  {path: plain, header: http.Header{"Authorization": {"Bearer " + stray}}},
		"a secret as another token": {path: plain, header: http.Header{"Authorization": {"Basic " + stray}}},
		"a secret as a proof":       {path: plain, header: http.Header{"Authorization": {"DPoP " + stray}, "Dpop": {stray}}},
		"a secret as a cookie":      {path: plain, header: http.Header{"Cookie": {"session=" + stray}}},
	}
	if path != plain {
		all["a secret in the path"] = abuse{path: parameter.ReplaceAllString(path, stray)}
	}
	return all
}

func (r *run) send(t *testing.T, method, path, body string, header http.Header) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, program.BaseURL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(req.Header, header)
	resp, err := r.http.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer
}

// searchOutputs searches the audit log, the configuration, the metrics, the log with the stacks of a crash, and the files.
func (r *run) searchOutputs(t *testing.T) {
	t.Helper()
	limit := 1000
	page, err := r.admin.ListAuditEntries(t.Context(), schema.AuditQuery{Limit: &limit})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Entries) < 5 {
		t.Fatalf("the trail has %d rows, which is not a run", len(page.Entries))
	}
	r.nowhere(t, "the audit trail", encode(t, page))
	config, err := r.admin.GetConfiguration(t.Context(), schema.ConfigRequest{XPath: "ROOT"})
	if err != nil {
		t.Fatal(err)
	}
	r.nowhere(t, "the configuration", encode(t, config))
	at, metrics := r.metrics(t)
	r.nowhere(t, "the page of metrics", metrics)
	r.bundle(t, at)

	if err := r.server.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	<-r.server.Exited()
	log := r.server.Log()
	if !strings.Contains(log, "goroutine ") || !strings.Contains(log, `"level":"DEBUG"`) {
		t.Fatalf("the log has no debug lines or no stacks, so it shows nothing:\n%.2000s", log)
	}
	r.nowhere(t, "the log", []byte(log))
	r.files(t)
}

// files searches everything that the process stored except the first password.
func (r *run) files(t *testing.T) {
	t.Helper()
	seen := 0
	err := filepath.WalkDir(r.server.DataDir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		seen++
		r.nowhere(t, "the file "+entry.Name(), content)
		return nil
	})
	if err != nil || seen == 0 {
		t.Errorf("%d files looked through: %v", seen, err)
	}
}

func (r *run) metrics(t *testing.T) (at string, text []byte) {
	t.Helper()
	config, err := r.admin.GetConfiguration(t.Context(), schema.ConfigRequest{XPath: "Listeners.Listener[@name=metrics]"})
	if err != nil || len(config.Nodes) != 1 {
		t.Fatalf("the metrics listener: %+v, %v", config, err)
	}
	at = "http://" + config.Nodes[0].Attrs["address"] + "/metrics"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err = io.ReadAll(resp.Body)
	if err != nil || !bytes.Contains(text, []byte("process_")) {
		t.Fatalf("%.200s, %v", text, err)
	}
	return at, text
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return append(text, fmt.Sprintf("%+v", v)...)
}
