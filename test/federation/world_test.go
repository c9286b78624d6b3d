// Package federation checks what key servers do for each other's principals,
// over real TLS between real servers, each at a loopback address of its own,
// on both databases.
package federation

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/pgtest"
	"github.com/keyserver-operator/keyserver-operator/internal/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/testserver"
)

// patience is far longer than anything here takes.
const patience = 30 * time.Second

const password = "a password for tests"

// databases are what every clause is checked on.
var databases = map[string]func(testing.TB) testserver.Option{
	"SQLite": func(testing.TB) testserver.Option { return func(*server.Config) {} },
	"PostgreSQL": func(t testing.TB) testserver.Option {
		url := pgtest.Database(t)
		return func(c *server.Config) { c.DatabaseURL = url }
	},
}

// between runs a test on two key servers that are registered with each other,
// per database.
func between(t *testing.T, test func(t *testing.T, a, b *site), options ...testserver.Option) {
	t.Helper()
	for name, database := range databases {
		t.Run(name, func(t *testing.T) {
			a := open(t, 2, append(options, database(t))...)
			b := open(t, 3, append(options, database(t))...)
			a.register(t, b)
			b.register(t, a)
			test(t, a, b)
		})
	}
}

// site is a key server. Its system id n stands at the address 127.0.0.n.
type site struct {
	*testserver.Server
	system   int
	external string
	clock    func() time.Time
	http     *http.Client
	sessions map[string]string
}

func open(t testing.TB, system int, options ...testserver.Option) *site {
	t.Helper()
	host := "127.0.0." + strconv.Itoa(system)
	s := &site{system: system, external: freeAddress(t, host), sessions: map[string]string{}}
	s.Server = testserver.Start(t, append([]testserver.Option{func(c *server.Config) {
		c.SystemID, c.ServerName, c.ExternalListen = uint32(system), host, s.external
	}}, append(options, func(c *server.Config) { s.clock = c.Clock })...)...)
	s.http = &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: s.Pool(t), MinVersion: tls.VersionTLS13, Time: s.clock},
	}}
	t.Cleanup(s.http.CloseIdleConnections)
	return s
}

// freeAddress is one that nobody listened on a moment ago; a server that is
// started again has to find it as it was.
func freeAddress(t testing.TB, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// object is a JSON object of the wire.
type object = map[string]any

// answer is a response as a client sees it.
type answer struct {
	status    int
	header    http.Header
	body      object
	raw       []byte
	requestID string
}

func (a answer) text(field string) string { s, _ := a.body[field].(string); return s }

func (a answer) list(field string) []object {
	raw, _ := a.body[field].([]any)
	list := make([]object, len(raw))
	for i, v := range raw {
		list[i], _ = v.(object)
	}
	return list
}

// send makes one request. body is nil or anything that becomes JSON.
func (s *site) send(t testing.TB, session, method, path string, body any) answer {
	t.Helper()
	a, err := s.try(t.Context(), session, method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// try is send where the server may not be up.
func (s *site) try(ctx context.Context, session, method, path string, body any) (answer, error) {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return answer{}, err
		}
		content = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.URL()+path, content)
	if err != nil {
		return answer{}, err
	}
	id := make([]byte, 8)
	_, _ = rand.Read(id)
	req.Header.Set("X-Request-Id", hex.EncodeToString(id))
	if session != "" {
		req.Header.Set("Authorization", "Bearer "+session)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header, requestID: resp.Header.Get("X-Request-Id")}
	if a.raw, err = io.ReadAll(resp.Body); err != nil {
		return answer{}, err
	}
	return a, json.Unmarshal(a.raw, &a.body)
}

// ok makes a request that has to succeed.
func (s *site) ok(t testing.TB, session, method, path string, body any) answer {
	t.Helper()
	a := s.send(t, session, method, path, body)
	if a.status != http.StatusOK {
		t.Fatalf("%s %s at %d: got %d %s", method, path, s.system, a.status, a.raw)
	}
	return a
}

// refused makes a request that has to be refused with that status and code.
func (s *site) refused(t testing.TB, session, method, path string, body any, status int, code string) answer {
	t.Helper()
	a := s.send(t, session, method, path, body)
	if a.status != status || a.text("code") != code {
		t.Errorf("%s %s at %d: got %d %s, want %d %s", method, path, s.system, a.status, a.raw, status, code)
	}
	return a
}

// login logs a principal in, once.
func (s *site) login(t testing.TB, name, secret string) string {
	t.Helper()
	if id, ok := s.sessions[name]; ok {
		return id
	}
	s.sessions[name] = s.ok(t, "", "POST", "/api/sessions", object{"method": "password", "name": name, "password": secret}).text("sessionId")
	return s.sessions[name]
}

func (s *site) admin(t testing.TB) string {
	t.Helper()
	return s.login(t, testserver.AdminName, testserver.AdminPassword)
}

// user is a principal of a key server that is logged in there.
type user struct {
	at      *site
	session string
	id      string // 16 hex digits
	decimal string
}

// user makes a password principal that holds built-in roles.
func (s *site) user(t testing.TB, name string, roles ...keyserver.ID) user {
	t.Helper()
	ids := []string{}
	for _, r := range roles {
		ids = append(ids, r.Hex())
	}
	a := s.ok(t, s.admin(t), "POST", "/api/principals/password", object{"name": name, "password": password, "roleIds": ids})
	p, _ := a.body["principal"].(object)
	id, _ := p["id"].(string)
	decimal, _ := p["principalId"].(string)
	return user{at: s, session: s.login(t, name, password), id: id, decimal: decimal}
}

// expose makes or changes the principal trust of a principal for a peer.
func (s *site) expose(t testing.TB, principal string, peer *site) (row string) {
	t.Helper()
	return s.trust(t, principal, peer, "expose")
}

func (s *site) trust(t testing.TB, principal string, peer *site, flag string) (row string) {
	t.Helper()
	a := s.ok(t, s.admin(t), "POST", "/api/principal-trusts", object{"principalId": principal, "trustedServerSystemId": peer.system, "flag": flag})
	p, _ := a.body["principalTrust"].(object)
	row, _ = p["id"].(string)
	return row
}

// register makes another key server a peer: its CA is trusted, then its trust
// blob registered.
func (s *site) register(t testing.TB, other *site) {
	t.Helper()
	s.trustCA(t, other)
	blob := other.ok(t, other.admin(t), "GET", "/api/trust/local-info", nil).text("trustBlob")
	s.ok(t, s.admin(t), "POST", "/api/trusted-servers", object{"trustBlob": blob, "friendlyName": "site " + strconv.Itoa(other.system), "description": "for tests"})
}

// trustCA trusts the CA of another key server and answers the CA's id in the list.
func (s *site) trustCA(t testing.TB, other *site) string {
	t.Helper()
	chain := other.ok(t, other.admin(t), "GET", "/api/trust/local-info", nil).text("chain")
	der, err := base64.StdEncoding.DecodeString(chain)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := pki.ParseChain(der)
	if err != nil || len(parsed.Intermediates) != 1 {
		t.Fatalf("the chain of %d: %v", other.system, err)
	}
	a := s.ok(t, s.admin(t), "POST", "/api/trusted-cas", object{"certificate": base64.StdEncoding.EncodeToString(parsed.Intermediates[0].Raw)})
	ca, _ := a.body["trustedCA"].(object)
	id, _ := ca["certificateId"].(string)
	return id
}

// mint makes a key of its owner's key server with the given material, or with
// one that nobody knows.
func (u user) mint(t testing.TB, material []byte) (ttag string) {
	t.Helper()
	body := object{"algorithm": "HMAC-SHA384"}
	if material != nil {
		body["material"] = base64.StdEncoding.EncodeToString(material)
	}
	return u.at.ok(t, u.session, "POST", "/api/keys", body).text("ttag")
}

// grant gives somebody, of whatever key server, rights on a key.
func (u user) grant(t testing.TB, ttag string, to user, rights ...string) {
	t.Helper()
	u.at.ok(t, u.session, "POST", "/api/keys/acl/grant", object{"ttag": ttag, "systemId": to.at.system, "principalId": to.decimal, "rights": rights})
}

// rows are those of the audit trail with a request id, as "operation outcome reason".
func (s *site) rows(t testing.TB, requestID string) []object {
	t.Helper()
	var found []object
	query := "?limit=1000"
	for {
		a := s.ok(t, s.admin(t), "GET", "/api/audit"+query, nil)
		for _, row := range a.list("entries") {
			if row["requestId"] == requestID {
				found = append(found, row)
			}
		}
		next, more := a.body["next"].(float64)
		if !more {
			return found
		}
		query = "?limit=1000&cursor=" + strconv.FormatInt(int64(next), 10)
	}
}

// brief spells rows of the audit trail.
func brief(rows []object) string {
	var out []string
	for _, r := range rows {
		out = append(out, fmt.Sprintf("%v %v %v", r["operation"], r["outcome"], r["reason"]))
	}
	return fmt.Sprint(out)
}

// soon waits until a condition holds.
func soon(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("never came about: %s", what)
}

// number spells a JSON number without exponent.
func number(v any) string {
	n, _ := v.(float64)
	return strconv.FormatInt(int64(n), 10)
}
