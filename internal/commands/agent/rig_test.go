package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/agent"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/tokens"
)

type object = map[string]any

const (
	issuerName = "https://cluster.example"
	audience   = "https://keys.example"
	web        = "system:serviceaccount:shop:web"
	other      = "system:serviceaccount:shop:other"
)

// world is a key server with a workload that has a token file and may use two key lineages.
type world struct {
	*testserver.Server
	issuer     *tokens.Issuer
	token      string // path of the token file
	line, more schema.HiddenLink
	admin      *client.Client
	web        schema.HexID
}

func newWorld(t *testing.T) *world {
	t.Helper()
	i := tokens.NewIssuer(t, issuerName, audience)
	w := &world{issuer: i, token: filepath.Join(t.TempDir(), "token"), Server: testserver.Start(t, func(c *server.Config) {
		c.Providers.OIDCIssuer, c.Providers.OIDCAudiences, c.Providers.OIDCKeysFile = issuerName, []string{audience}, i.KeysFile
	})}
	w.admin = w.Admin(t)
	catalogue, err := w.admin.ListOperations(t.Context())
	rig.Must(t, err)
	var ids []schema.HexID
	for _, op := range catalogue.Operations {
		if op.Duty == "key use" {
			ids = append(ids, op.ID)
		}
	}
	role, err := w.admin.CreateRole(t.Context(), schema.CreateRoleRequest{Name: "Workload", Operations: ids})
	rig.Must(t, err)
	for _, subject := range []string{web, other} {
		made, err := w.admin.CreateXAuthPrincipal(t.Context(), schema.CreateXAuthPrincipalRequest{
			Name: subject, Issuer: issuerName, Subject: subject, RoleIDs: []schema.HexID{role.ID},
		})
		rig.Must(t, err)
		if subject == web {
			w.web = made.Principal.ID
		}
	}
	w.project(t, i.Token(t, web, 10*time.Minute))
	keeper, err := client.New(client.Options{BaseURL: w.URL(), RootCAs: w.Pool(t), Credentials: client.KubernetesCredentials(w.token)})
	rig.Must(t, err)
	for _, link := range []*schema.HiddenLink{&w.line, &w.more} {
		key, err := keeper.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
		rig.Must(t, err)
		*link = key.TTag
	}
	rig.Must(t, keeper.Logout(t.Context()))
	keeper.CloseIdleConnections()
	return w
}

// project replaces the token file like the kubelet.
func (w *world) project(t testing.TB, token string) {
	t.Helper()
	rig.Must(t, os.WriteFile(w.token+".new", []byte(token+"\n"), 0o600))
	rig.Must(t, os.Rename(w.token+".new", w.token))
}

// config returns the configuration of an agent on loopback.
func (w *world) config() agent.Config {
	return agent.Config{
		Server: w.URL(), CAFile: w.CAFile(), TokenFile: w.token, Listen: "127.0.0.1:0", SocketMode: agent.DefaultSocketMode,
		MetricsListen: "127.0.0.1:0", MaxRequests: agent.DefaultMaxRequests, Batch: agent.BatchOn, UserAgent: "agent-test",
		Logger: slog.New(slog.DiscardHandler), Clock: time.Now,
	}
}

// workload sends requests to an agent.
type workload struct {
	*agent.Agent
	log  *rig.Output
	http *http.Client
	base string
}

// begin starts an agent until the test ends.
func begin(t testing.TB, c agent.Config) *workload {
	t.Helper()
	w := &workload{log: &rig.Output{}}
	c.Logger = slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	a, err := agent.Start(t.Context(), c)
	rig.Must(t, err)
	w.Agent, w.base = a, "http://"+a.Address()
	transport := &http.Transport{}
	if path, ok := strings.CutPrefix(a.Address(), "unix://"); ok {
		w.base = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
	}
	w.http = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		w.stop(t)
	})
	return w
}

func (w *workload) stop(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	rig.Must(t, w.Shutdown(ctx))
}

// reply is a response to the workload.
type reply struct {
	status int
	header http.Header
	body   object
}

func (r reply) code() string { return r.text("code") }

func (r reply) text(member string) string { s, _ := r.body[member].(string); return s }

// asks sends a request. If body is an io.Reader, it is streamed.
func (w *workload) asks(t testing.TB, method, path string, body any, headers ...string) reply {
	t.Helper()
	var from io.Reader
	switch b := body.(type) {
	case nil:
	case io.Reader:
		from = b
	case string:
		from = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		rig.Must(t, err)
		from = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, w.base+path, from)
	rig.Must(t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header[headers[i]] = []string{headers[i+1]}
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	resp, err := w.http.Do(req)
	rig.Must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	rig.Must(t, err)
	r := reply{status: resp.StatusCode, header: resp.Header}
	if err := json.Unmarshal(text, &r.body); err != nil {
		t.Fatalf("%s %s: %d %s is no JSON", method, path, resp.StatusCode, text)
	}
	return r
}

// fails sends a request that must be rejected.
func (w *workload) fails(t testing.TB, status int, code, method, path string, body any, headers ...string) reply {
	t.Helper()
	r := w.asks(t, method, path, body, headers...)
	if r.status != status || r.code() != code || r.text("detail") == "" {
		t.Errorf("%s %s: %d %v; want %d %s", method, path, r.status, r.body, status, code)
	}
	return r
}

// works sends a request that must succeed.
func (w *workload) works(t testing.TB, method, path string, body any, headers ...string) reply {
	t.Helper()
	r := w.asks(t, method, path, body, headers...)
	if r.status != http.StatusOK {
		t.Fatalf("%s %s: %d %v", method, path, r.status, r.body)
	}
	return r
}

const current = "/api/sessions/current"

func (w *world) mac(data string) object { return object{"lineage": w.line.String(), "data": data} }

// logins returns the number of the agent's login attempts.
func (w *workload) logins(t testing.TB) int {
	t.Helper()
	return w.metric(t, "keyserver_agent_logins_total")
}

// metric returns the value of a metric.
func (w *workload) metric(t testing.TB, name string) int {
	t.Helper()
	resp, err := http.Get("http://" + w.MetricsAddress() + "/metrics")
	rig.Must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	rig.Must(t, err)
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` ([0-9]+)$`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("there is no %s:\n%s", name, text)
	}
	n, err := strconv.Atoi(string(m[1]))
	rig.Must(t, err)
	return n
}

// sessions returns the number of the workload's sessions.
func (w *world) sessions(t testing.TB) int {
	t.Helper()
	page, err := w.admin.ListSessions(t.Context(), schema.SessionQuery{PrincipalID: &w.web})
	rig.Must(t, err)
	return len(page.Sessions)
}
