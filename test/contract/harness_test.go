// Package contract checks the HTTP interface clause by clause, over real TLS,
// on both databases. One table per endpoint, refusals first; a test's name
// says what it shows. The clauses are those of docs/contract.md.
package contract

import (
	"crypto/tls"
	"net/http"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/pgtest"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
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

// subject is the server that a clause is checked on.
type subject struct {
	*testserver.Server
	*rig.Site
}

func start(t *testing.T, options ...testserver.Option) *subject {
	t.Helper()
	running := testserver.Start(t, options...)
	var asked server.Config
	for _, o := range options {
		o(&asked)
	}
	s := &subject{Server: running, Site: &rig.Site{
		Base: func() string { return running.URL() },
		HTTP: &http.Client{
			Timeout:       time.Minute,
			Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: running.Pool(t), MinVersion: tls.VersionTLS13}},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		Administrator: rig.Credentials{Name: testserver.AdminName, Password: testserver.AdminPassword},
		Inspect:       inspect,
	}}
	if asked.Deployment == string(keyserver.Split) {
		s.Officer = rig.Credentials{Name: testserver.OfficerName, Password: testserver.AdminPassword}
	}
	t.Cleanup(s.HTTP.CloseIdleConnections)
	return s
}

// inspect notes the code of an answer and holds it against the document.
func inspect(t testing.TB, r *http.Request, a rig.Answer) {
	t.Helper()
	seen.add(a.Code())
	validate(t, r, a)
}

// with makes a password principal that holds one built-in role, and returns a
// session of it.
func (s *subject) with(t testing.TB, role keyserver.ID) string {
	t.Helper()
	name := "holder of " + role.Hex()
	if !s.Knows(name) {
		return s.User(t, name, role).Session
	}
	return s.As(t, name, rig.Password)
}
