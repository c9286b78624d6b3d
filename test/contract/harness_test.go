// Package contract checks the HTTP interface clause by clause, over real TLS,
// on both databases. One table per endpoint, refusals first; a test's name
// says what it shows. The clauses are those of docs/contract.md.
package contract

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/pgtest"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/testserver"
)

// databases are what every clause is checked on.
var databases = map[string]func(testing.TB) testserver.Option{
	"SQLite": func(testing.TB) testserver.Option { return func(*server.Config) {} },
	"PostgreSQL": func(t testing.TB) testserver.Option {
		url := pgtest.Database(t)
		return func(c *server.Config) { c.DatabaseURL = url }
	},
}

// split divides the duties of Administrator and Security Officer.
func split(c *server.Config) { c.Deployment = string(keyserver.Split) }

// on runs a test against a fresh server per database.
func on(t *testing.T, test func(t *testing.T, s *subject), options ...testserver.Option) {
	t.Helper()
	for name, database := range databases {
		t.Run(name, func(t *testing.T) { test(t, start(t, append(options, database(t))...)) })
	}
}

// one returns a server on the embedded database, for clauses that no database
// has a part in.
func one(t *testing.T) *subject {
	t.Helper()
	return start(t)
}

func start(t *testing.T, options ...testserver.Option) *subject {
	t.Helper()
	server := testserver.Start(t, options...)
	s := &subject{Server: server, http: &http.Client{
		Timeout:       time.Minute,
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: server.Pool(t), MinVersion: tls.VersionTLS13}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	t.Cleanup(s.http.CloseIdleConnections)
	return s
}

// number spells a JSON number without exponent.
func number(n float64) string { return strconv.FormatInt(int64(n), 10) }

// subject is the server that a clause is checked on.
type subject struct {
	*testserver.Server
	http *http.Client

	mu       sync.Mutex
	sessions map[string]string
}

// object is a JSON object of the wire.
type object = map[string]any

// answer is a response as a client sees it.
type answer struct {
	status int
	header http.Header
	body   object
	raw    []byte
}

// code is the failure's code, empty on success.
func (a answer) code() string { s, _ := a.body["code"].(string); return s }

// list returns an array of objects.
func (a answer) list(t testing.TB, field string) []object {
	t.Helper()
	raw, ok := a.body[field].([]any)
	if !ok {
		t.Fatalf("%q is no array in %s", field, a.raw)
	}
	list := make([]object, len(raw))
	for i, v := range raw {
		if list[i], ok = v.(object); !ok {
			t.Fatalf("%q holds something else than objects in %s", field, a.raw)
		}
	}
	return list
}

// at returns the value at a path of members.
func (a answer) at(t testing.TB, path ...string) any {
	t.Helper()
	var v any = a.body
	for _, p := range path {
		o, ok := v.(object)
		if !ok {
			t.Fatalf("no object above %q in %s", p, a.raw)
		}
		v = o[p]
	}
	return v
}

// text returns the string at a path of members.
func (a answer) text(t testing.TB, path ...string) string {
	t.Helper()
	s, ok := a.at(t, path...).(string)
	if !ok {
		t.Fatalf("%v is no string in %s", path, a.raw)
	}
	return s
}

// send makes one request. body is nil, a string sent as it is, or anything
// that becomes JSON.
func (s *subject) send(t testing.TB, session, method, path string, body any) answer {
	t.Helper()
	return s.named(t, "", session, method, path, body)
}

// named makes one request under an id that audit rows name it by.
func (s *subject) named(t testing.TB, id, session, method, path string, body any) answer {
	t.Helper()
	var content io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		content = bytes.NewReader([]byte(b))
	default:
		encoded, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		content = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, s.URL()+path, content)
	if err != nil {
		t.Fatal(err)
	}
	if session != "" {
		req.Header.Set("Authorization", "Bearer "+session)
	}
	if id != "" {
		req.Header.Set("X-Request-Id", id)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header}
	if a.raw, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(a.raw, &a.body); err != nil {
		t.Fatalf("%s %s answered %d with something else than a JSON object: %s", method, path, a.status, a.raw)
	}
	seen.add(a.code())
	validate(t, req, a)
	return a
}

// as logs a principal in, once, and returns its session id.
func (s *subject) as(t testing.TB, name, password string) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if id, ok := s.sessions[name]; ok {
		return id
	}
	a := s.send(t, "", "POST", "/api/sessions", object{"method": "password", "name": name, "password": password})
	if a.status != http.StatusOK {
		t.Fatalf("log in as %s: %s", name, a.raw)
	}
	if s.sessions == nil {
		s.sessions = map[string]string{}
	}
	s.sessions[name] = a.text(t, "sessionId")
	return s.sessions[name]
}

// admin returns a session of the first administrator.
func (s *subject) admin(t testing.TB) string {
	t.Helper()
	return s.as(t, testserver.AdminName, testserver.AdminPassword)
}

// with makes a password principal that holds one built-in role, and returns a
// session of it.
func (s *subject) with(t testing.TB, role keyserver.ID) string {
	t.Helper()
	const password = "a password for tests"
	name := "holder of " + role.Hex()
	s.mu.Lock()
	_, known := s.sessions[name]
	s.mu.Unlock()
	if !known {
		s.ok(t, s.admin(t), "POST", "/api/principals/password", object{"name": name, "password": password, "roleIds": []string{role.Hex()}})
	}
	return s.as(t, name, password)
}

// ok makes a request that has to succeed.
func (s *subject) ok(t testing.TB, session, method, path string, body any) answer {
	t.Helper()
	a := s.send(t, session, method, path, body)
	if a.status != http.StatusOK {
		t.Fatalf("%s %s: got %d %s", method, path, a.status, a.raw)
	}
	return a
}

// refused makes a request that has to be refused with that status and code,
// in JSON with a detail.
func (s *subject) refused(t testing.TB, session, method, path string, body any, status int, code string) answer {
	t.Helper()
	a := s.send(t, session, method, path, body)
	if a.status != status || a.code() != code {
		t.Errorf("%s %s %s: got %d %s, want %d %s", method, path, brief(body), a.status, a.raw, status, code)
	}
	if detail, _ := a.body["detail"].(string); detail == "" {
		t.Errorf("%s %s: a failure without detail: %s", method, path, a.raw)
	}
	return a
}

func brief(body any) string {
	s := fmt.Sprint(body)
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	return s
}
