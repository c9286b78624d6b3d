// Package processes tests federation between three key servers as separate processes, each at its own loopback address.
// The test controls the network between them. Most tests run on both databases.
package processes

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/migrated"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// peerTimeout is short because tests wait for it, but far longer than a response takes.
const peerTimeout = 5 * time.Second

// prompt is shorter than the minute after which a key server checks everything again. If a change takes effect within
// prompt, the peer was notified.
const prompt = 30 * time.Second

var built program.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m, &built, false)) }

// database makes an empty database and returns the flags for it.
type database func(testing.TB) []string

func sqlite(testing.TB) []string { return nil } // the data directory contains it

func postgreSQL(t testing.TB) []string { return []string{"--database-url", migrated.Database(t)} }

// onEach runs a test once for each database. Tests that are only about connections use SQLite, because they wait for
// timeouts.
func onEach(t *testing.T, test func(t *testing.T, on database)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) { test(t, sqlite) })
	t.Run("PostgreSQL", func(t *testing.T) { test(t, postgreSQL) })
}

// site is a key server in a separate process. If its system id is n, its address is 127.0.0.n.
type site struct {
	*rig.Site
	host     string
	external string // its listener for peers
	dir      string
	state    []string // flags that select its database; none for the embedded database
	server   *program.Server
	links    map[int]*link // links to its peers, by system id
	binary   program.Program
	direct   bool // peers reach it without a link
}

// newSite returns a key server that is not started.
func newSite(system int, host, external string) *site {
	s := &site{host: host, external: external, links: map[int]*link{}, binary: built}
	s.Site = &rig.Site{System: system, Base: func() string { return program.BaseURL }, Log: func() string { return s.server.Log() }}
	return s
}

// three returns key servers with the system ids 2, 3 and 4 that have registered each other.
func three(t *testing.T, on database) (a, b, c *site) {
	t.Helper()
	a, b, c = open(t, on, 2), open(t, on, 3), open(t, on, 4)
	registerEachOther(t, a, b, c)
	return a, b, c
}

// registerEachOther registers each key server with all others.
func registerEachOther(t *testing.T, sites ...*site) {
	t.Helper()
	for _, s := range sites {
		for _, other := range sites {
			if s != other {
				s.Trust(t, other.Site)
				s.register(t, other)
			}
		}
	}
}

func open(t *testing.T, on database, system int) *site {
	t.Helper()
	host := "127.0.0." + strconv.Itoa(system)
	s := newSite(system, host, rig.FreeAddress(t, host))
	s.state = on(t)
	s.enter(t)
	return s
}

// enter starts the process for the first time and logs in.
func (s *site) enter(t *testing.T) {
	t.Helper()
	s.dir = filepath.Join(t.TempDir(), "data")
	s.run(t)
	password, err := s.server.Password()
	if err != nil {
		t.Fatal(err)
	}
	s.Administrator = rig.Credentials{Name: "admin", Password: password}
	s.AsAdmin(t)
}

// run starts the process until the test ends, and creates its HTTP client.
func (s *site) run(t *testing.T) {
	t.Helper()
	s.start(t)
	t.Cleanup(func() { s.server.Kill() })
	s.HTTP = &http.Client{Timeout: rig.Patience, Transport: s.direction(t)}
}

// direction returns a transport to the current process.
func (s *site) direction(t *testing.T) *http.Transport {
	t.Helper()
	return program.Connect(t, s.dir, func() string { return s.server.Address })
}

// start starts a process with the data and the address of the previous process.
func (s *site) start(t testing.TB) {
	t.Helper()
	var err error
	args := []string{
		"--listen", net.JoinHostPort(s.host, "0"), "--system-id", strconv.Itoa(s.System), "--server-name", s.host,
		"--external-listen", s.external, "--peer-timeout", peerTimeout.String(),
	}
	s.server, err = s.binary.Serve(s.dir, append(args, s.state...)...)
	if err != nil {
		t.Fatal(err)
	}
}

// verifyTrail verifies the audit log with the command audit verify.
func (s *site) verifyTrail(t testing.TB) {
	t.Helper()
	out, err := built.Run(append([]string{"audit", "verify", "--data-dir", s.dir}, s.state...)...)
	if err != nil || !strings.HasPrefix(out, "audit log intact") {
		t.Errorf("the audit trail of %d: %v %s", s.System, err, out)
	}
}

// register makes another key server a peer, over a separate link.
func (s *site) register(t testing.TB, other *site) rig.Answer {
	t.Helper()
	if other.direct {
		return s.Register(t, other.Site, strconv.Itoa(peersPort))
	}
	if s.links[other.System] == nil {
		s.links[other.System] = newLink(t, other.host, other.external)
	}
	return s.Register(t, other.Site, strconv.Itoa(s.links[other.System].port()))
}

// pair is a principal, and a key of another key server that it may use.
type pair struct {
	from, to      *site // key servers of the caller and of the key
	caller, owner rig.User
	ttag          string
	row           string // the principal trust of the caller
}

const material = "the key that stays at home"

// share makes a caller at one key server and grants it rights on a key of another one.
func share(t testing.TB, from, to *site, name string, rights ...string) pair {
	t.Helper()
	p := pair{from: from, to: to, caller: from.User(t, name+" caller", keyserver.RoleEncryptor), owner: to.User(t, name+" owner", keyserver.RoleEncryptor)}
	p.ttag = p.owner.Mint(t, []byte(material))
	p.row = from.Expose(t, p.caller.ID, to.Site)
	p.owner.Grant(t, p.ttag, p.caller, rights...)
	return p
}

// ask requests authorization to use the key.
func (p pair) ask(t testing.TB) rig.Answer {
	t.Helper()
	return p.caller.Site.Send(t, p.caller.Session, "POST", "/api/keys/authorize", rig.Object{"ttag": p.ttag})
}

// connections is the number of connections to a peer, which calls use alternately.
const connections = 2

// works waits until requests succeed over every connection. After a failure, a connection is not used for a moment.
func (p pair) works(t testing.TB) {
	t.Helper()
	rig.Soon(t, "the peer answers", func() bool {
		for range connections {
			if p.ask(t).Status != http.StatusOK {
				return false
			}
		}
		return true
	})
}
