// Package contract checks the HTTP interface clause by clause, over real TLS. There is one table per endpoint, refusals
// first. The clauses are those of docs/contract.md.
//
// Tests share servers. Each configuration has one server per database for the entire run. on runs a test on both
// databases, embedded only on SQLite. Both run tests in parallel, so a test uses only its own objects:
//
//   - Each test has a separate administrator, and s.name makes its names unique.
//   - The requests of each test come from a separate address. So s.trail
//     selects the audit rows of the test, and throttles do not affect other tests.
//   - A test that changes settings of the server, counts all objects of a kind,
//     or restarts the server must use the option alone.
//   - A test that damages the server or needs a special configuration calls start
//     or own. TestMain fails if a run starts more than maxStarts servers.
//
// A clause is checked on both databases if it concerns stored rows, lists, pages or concurrent changes: principals,
// keys, approvals, sessions, the audit log. Other clauses are checked only on SQLite: syntax, headers, refusals before
// the store, formats of cryptography. The conformance tests of internal/store/sqlstore compare the two databases.
package contract

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// Names of the databases.
const (
	embeddedSQLite = "SQLite"
	postgreSQL     = "PostgreSQL"
)

// databases return an option with an empty database.
var databases = map[string]func(testing.TB) testserver.Option{
	embeddedSQLite: func(testing.TB) testserver.Option { return func(*server.Config) {} },
	postgreSQL: func(t testing.TB) testserver.Option {
		url := pgtest.Database(t)
		return func(c *server.Config) {
			c.DatabaseURL = url
			c.DatabaseMaxConnections = 10 // many servers share one PostgreSQL
		}
	},
}

// share gives replicas the same key-encryption key.
func share(c *server.Config) {
	c.KEK = "base64key://" + base64.URLEncoding.EncodeToString(make([]byte, 32))
}

// divided configures a split deployment.
func divided(c *server.Config) { c.Deployment = string(keyserver.Split) }

// serverConfig is a configuration and its servers by database.
type serverConfig struct {
	options  []testserver.Option
	prepare  func(testing.TB) []testserver.Option // returns more options; nil for none
	replicas bool                                 // a second server on PostgreSQL

	mu     sync.Mutex
	places map[string]*sharedServer
}

// The configurations that tests of several files share.
var (
	unified = &serverConfig{options: []testserver.Option{versioned}, replicas: true}
	// A split deployment.
	apart = &serverConfig{options: []testserver.Option{divided}, replicas: true}
	// Tests with this configuration list all objects. No test adds objects of a kind that another test lists.
	bare = &serverConfig{}
)

// sharedServer is a server that several tests share.
type sharedServer struct {
	sync.RWMutex // a test with the option alone holds the write lock

	server, replica *testserver.Server // replica is nil if there is no second server
	root            *rig.Site          // client of the first administrator
}

// choices are the options of a test other than the database.
type choices struct {
	ground *serverConfig
	alone  bool
}

type choice func(*choices)

// split runs a test in a split deployment.
func split(c *choices) { c.ground = apart }

// untouched runs a test with the configuration bare, in which tests count all objects.
func untouched(c *choices) { c.ground = bare }

// alone runs no other test on the server while the test runs.
func alone(c *choices) { c.alone = true }

// at runs a test with a configuration of its file.
func at(g *serverConfig) choice { return func(c *choices) { c.ground = g } }

// on runs a test on each database, in parallel with other tests.
func on(t *testing.T, test func(t *testing.T, s *subject), with ...choice) {
	t.Helper()
	t.Parallel()
	for name := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, visit(t, name, with...))
		})
	}
}

// embedded runs a test on the embedded database, in parallel with other tests.
func embedded(t *testing.T, test func(t *testing.T, s *subject), with ...choice) {
	t.Helper()
	t.Parallel()
	t.Run(embeddedSQLite, func(t *testing.T) { test(t, visit(t, embeddedSQLite, with...)) })
}

// one is like embedded, for a test without subtests.
func one(t *testing.T, with ...choice) *subject {
	t.Helper()
	t.Parallel()
	return visit(t, embeddedSQLite, with...)
}

// own runs a test on each database with a separate server.
func own(t *testing.T, test func(t *testing.T, s *subject), options ...testserver.Option) {
	t.Helper()
	t.Parallel()
	for name, database := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t, append([]testserver.Option{database(t)}, options...)...))
		})
	}
}

// ownEmbedded runs a test on the embedded database with a separate server.
func ownEmbedded(t *testing.T, test func(t *testing.T, s *subject), options ...testserver.Option) {
	t.Helper()
	t.Parallel()
	t.Run(embeddedSQLite, func(t *testing.T) { test(t, start(t, options...)) })
}

// replicated runs a test on each database. On PostgreSQL there is a second server on the same database. For the
// embedded database, both subjects are the same process.
func replicated(t *testing.T, test func(t *testing.T, s, other *subject), with ...choice) {
	t.Helper()
	t.Parallel()
	for name := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := visit(t, name, with...)
			test(t, s, s.other(t))
		})
	}
}

// replicas returns two servers on one database.
func replicas(t *testing.T, with ...choice) (s, other *subject) {
	t.Helper()
	t.Parallel()
	s = visit(t, postgreSQL, with...)
	return s, s.other(t)
}

// subject is the server under test, as one test uses it.
type subject struct {
	*testserver.Server
	*rig.Site
	number int           // number of the test; 0 if the server is not shared
	from   string        // source address of its requests
	place  *sharedServer // nil if the server is not shared
}

// visits counts the subjects of shared servers.
var visits atomic.Int64

// visit returns a shared server. It waits while a test with the option alone uses the server.
func visit(t *testing.T, database string, with ...choice) *subject {
	t.Helper()
	c := choices{ground: unified}
	for _, choose := range with {
		choose(&c)
	}
	p := c.ground.at(t, database)
	if c.alone {
		p.Lock()
		t.Cleanup(p.Unlock)
	} else {
		p.RLock()
		t.Cleanup(p.RUnlock)
	}
	p.root.HTTP.CloseIdleConnections() // these connections may be from before a restart of the server
	n := int(visits.Add(1))
	s := &subject{Server: p.server, number: n, from: fmt.Sprintf("127.1.%d.%d", n/256, n%256), place: p}
	s.Site = site(t, p.server, s.from)
	s.Officer = p.root.Officer
	s.Administrator = rig.Credentials{Name: s.name("administrator"), Password: rig.Password}
	p.createAdministrator(t, s.Administrator)
	return s
}

// createAdministrator creates an administrator with the roles of the first one.
func (p *sharedServer) createAdministrator(t *testing.T, a rig.Credentials) {
	t.Helper()
	roles := []keyserver.ID{}
	if p.root.Officer.Name == "" {
		roles = append(roles, keyserver.RoleAdministrator, keyserver.RoleEncryptor)
	}
	made := p.root.OK(t, p.root.AsAdmin(t), "POST", "/api/principals/password", rig.Object{"name": a.Name, "password": a.Password, "roleIds": hexes(roles...)})
	if p.root.Officer.Name != "" {
		p.root.GrantRolesByDuty(t, created(t, made), a.Name, keyserver.RoleAdministrator)
	}
}

// other returns the subject for the second replica, or the subject itself if there is only one process.
func (s *subject) other(t *testing.T) *subject {
	t.Helper()
	if s.place.replica == nil {
		return s
	}
	o := *s
	o.Server = s.place.replica
	o.Site = site(t, o.Server, s.from)
	o.Administrator, o.Officer = s.Administrator, s.Officer
	return &o
}

// at returns the server with this configuration on a database. The first call starts it.
func (g *serverConfig) at(t *testing.T, database string) *sharedServer {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.places[database]; p != nil {
		return p
	}
	life := &runTB{TB: t}
	p := &sharedServer{}
	options := append([]testserver.Option{databases[database](life)}, g.options...)
	if g.prepare != nil {
		options = append(options, g.prepare(life)...)
	}
	if database == postgreSQL && g.replicas {
		options = append(options, share)
		p.replica = run(life, options...)
	}
	p.server = run(life, options...)
	p.root = site(life, p.server, "127.0.0.1")
	p.root.Administrator, p.root.Officer = first(options)
	if g.places == nil {
		g.places = map[string]*sharedServer{}
	}
	g.places[database] = p
	return p
}

// runTB is a test whose cleanups run at the end of the run.
type runTB struct{ testing.TB }

// atEnd contains the cleanups of the run in the order of their registration.
var atEnd struct {
	sync.Mutex
	todo   []func()
	failed bool
}

// end runs the cleanups and reports whether all succeeded.
func end() bool {
	for {
		atEnd.Lock()
		n := len(atEnd.todo)
		if n == 0 {
			atEnd.Unlock()
			return !atEnd.failed
		}
		f := atEnd.todo[n-1]
		atEnd.todo = atEnd.todo[:n-1]
		atEnd.Unlock()
		f()
	}
}

func (l *runTB) Cleanup(f func()) {
	atEnd.Lock()
	defer atEnd.Unlock()
	atEnd.todo = append(atEnd.todo, f)
}

func (l *runTB) TempDir() string {
	dir, err := os.MkdirTemp("", "contract-")
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (l *runTB) Helper() {}

// Errorf is called only by cleanups, after the end of the test.
func (l *runTB) Errorf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "FAIL: "+format+"\n", args...)
	atEnd.failed = true
}

// start runs a server for one test.
func start(t *testing.T, options ...testserver.Option) *subject {
	t.Helper()
	s := &subject{Server: run(t, options...), from: "127.0.0.1"}
	s.Site = site(t, s.Server, s.from)
	s.Administrator, s.Officer = first(options)
	return s
}

// maxStarts bounds the servers of a run. Each must migrate a database, create a CA and hash a password.
const maxStarts = 60

var starts atomic.Int64

func run(t testing.TB, options ...testserver.Option) *testserver.Server {
	t.Helper()
	starts.Add(1)
	return testserver.Start(t, options...)
}

// first returns the credentials of the first principals of a server.
func first(options []testserver.Option) (administrator, officer rig.Credentials) {
	var asked server.Config
	for _, o := range options {
		o(&asked)
	}
	administrator = rig.Credentials{Name: testserver.AdminName, Password: testserver.AdminPassword}
	if asked.Deployment == string(keyserver.Split) {
		officer = rig.Credentials{Name: testserver.OfficerName, Password: testserver.AdminPassword}
	}
	return administrator, officer
}

// site returns a client of a server, with a source address.
func site(t testing.TB, running *testserver.Server, from string) *rig.Site {
	t.Helper()
	s := &rig.Site{
		Base: func() string {
			if scheme, _, _ := strings.Cut(running.URL(), ":"); scheme == "http" {
				return "http://" + running.Address()
			}
			return "https://" + running.Address() // regardless of its external name
		},
		HTTP: &http.Client{
			Timeout: time.Minute,
			Transport: &http.Transport{
				TLSClientConfig: &tls.Config{RootCAs: running.Pool(t), MinVersion: tls.VersionTLS13}, DialContext: dial(from),
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		Inspect: inspect,
	}
	t.Cleanup(s.HTTP.CloseIdleConnections)
	return s
}

// dial returns a dialer with a source address.
func dial(from string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext
}

// inspect records the code of a response and validates the response against the OpenAPI document.
func inspect(t testing.TB, r *http.Request, a rig.Answer) {
	t.Helper()
	seen.add(a.Code())
	validate(t, r, a)
}

// name returns a name that is unique to the test.
func (s *subject) name(of string) string {
	if s.number == 0 {
		return of
	}
	return fmt.Sprintf("%s-%d", of, s.number)
}

// path returns a path that is unique to the test.
func (s *subject) path(of string) string {
	if s.number == 0 {
		return of
	}
	return fmt.Sprintf("/%d%s", s.number, of)
}

// trail returns the path of an audit query for the rows of the test, with a filter.
func (s *subject) trail(filter ...string) string {
	return "/api/audit?" + strings.Join(append([]string{"address=" + s.from}, filter...), "&")
}

// Rows returns the test's audit rows with a request id.
func (s *subject) Rows(t testing.TB, requestID string) []rig.Object {
	t.Helper()
	var found []rig.Object
	reader := s.Administrator
	if s.Officer.Name != "" {
		reader = s.Officer
	}
	for cursor := ""; ; {
		a := s.OK(t, s.As(t, reader.Name, reader.Password), "GET", s.trail("limit=1000"+cursor), nil)
		for _, row := range a.List(t, "entries") {
			if row["requestId"] == requestID {
				found = append(found, row)
			}
		}
		next := rig.Number(a.Body["next"])
		if next == "" {
			return found
		}
		cursor = "&cursor=" + next
	}
}

// User creates a password principal with roles.
func (s *subject) User(t testing.TB, name string, roles ...keyserver.ID) rig.User {
	t.Helper()
	return s.Site.User(t, s.name(name), roles...)
}

// with returns a session of a password principal with one built-in role. The first call creates the principal.
func (s *subject) with(t testing.TB, role keyserver.ID) string {
	t.Helper()
	name := s.holderOf(role)
	if !s.HasSession(name) {
		return s.Site.User(t, name, role).Session
	}
	return s.As(t, name, rig.Password)
}

// holderOf returns the name of the principal of with.
func (s *subject) holderOf(role keyserver.ID) string { return s.name("holder of " + role.Hex()) }
