// Package processes checks federation between three key servers as they are
// run: processes of their own, each at a loopback address of its own, with the
// network between them in the test's hands, on both databases.
package processes

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/pgtest"
	"github.com/keyserver-operator/keyserver-operator/internal/pki"
	"github.com/keyserver-operator/keyserver-operator/test/program"
)

// peerTimeout is short, because tests wait for it, and still far longer than
// an answer takes.
const peerTimeout = 5 * time.Second

var built program.Program

func TestMain(m *testing.M) {
	var err error
	if built, err = program.Build(false); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	_ = built.Remove()
	os.Exit(status)
}

// database makes an empty one and answers the flags that say where it is.
type database func(testing.TB) []string

func sqlite(testing.TB) []string { return nil } // it is in the data directory

func postgreSQL(t testing.TB) []string { return []string{"--database-url", pgtest.Database(t)} }

// onEach runs a test once for each database. A test that is about connections
// alone, and waits for them to fail, is content with SQLite.
func onEach(t *testing.T, test func(t *testing.T, on database)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) { test(t, sqlite) })
	t.Run("PostgreSQL", func(t *testing.T) { test(t, postgreSQL) })
}

// site is a key server. Its system id n stands at the address 127.0.0.n.
type site struct {
	system   int
	host     string
	external string // where it listens for peers
	dir      string
	state    []string // flags that say where its database is, none for the data directory
	server   *program.Server
	http     *http.Client
	admin    string
	links    map[int]*link // to the peer of each system id
	binary   program.Program
	direct   bool // peers reach it without a link
}

// three are key servers with the system ids 2, 3 and 4, of which each has
// registered the others.
func three(t *testing.T, on database) (a, b, c *site) {
	t.Helper()
	a, b, c = open(t, on, 2), open(t, on, 3), open(t, on, 4)
	acquaint(t, a, b, c)
	return a, b, c
}

// acquaint makes each a peer of each.
func acquaint(t *testing.T, sites ...*site) {
	t.Helper()
	for _, s := range sites {
		for _, other := range sites {
			if s != other {
				s.trustCA(t, other)
				s.register(t, other)
			}
		}
	}
}

func open(t *testing.T, on database, system int) *site {
	t.Helper()
	host := "127.0.0." + strconv.Itoa(system)
	s := &site{system: system, host: host, external: freeAddress(t, host), state: on(t), links: map[int]*link{}, binary: built}
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
	s.admin = s.login(t, "admin", password)
}

// run starts the process until the test ends, and a client of it.
func (s *site) run(t *testing.T) {
	t.Helper()
	s.start(t)
	t.Cleanup(func() { s.server.Kill() })
	roots, err := program.Roots(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	transport := program.Transport(roots, func() string { return s.server.Address })
	s.http = &http.Client{Timeout: patience, Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
}

// start runs the process, on the data and at the address of the one before it.
func (s *site) start(t testing.TB) {
	t.Helper()
	var err error
	args := []string{
		"--listen", net.JoinHostPort(s.host, "0"), "--system-id", strconv.Itoa(s.system), "--server-name", s.host,
		"--external-listen", s.external, "--peer-timeout", peerTimeout.String(),
	}
	s.server, err = s.binary.Serve(s.dir, append(args, s.state...)...)
	if err != nil {
		t.Fatal(err)
	}
}

// verifyTrail asks the program itself whether the audit trail is whole.
func (s *site) verifyTrail(t testing.TB) {
	t.Helper()
	out, err := built.Run(append([]string{"audit", "verify", "--data-dir", s.dir}, s.state...)...)
	if err != nil || !strings.HasPrefix(out, "audit trail intact") {
		t.Errorf("the audit trail of %d: %v %s", s.system, err, out)
	}
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

// blob is the trust blob of a key server, as another one takes it that reaches
// it at a port.
func (s *site) blob(t testing.TB, port int) object {
	t.Helper()
	fields := strings.Split(s.ok(t, s.admin, "GET", "/api/trust/local-info", nil).text("trustBlob"), "\t")
	if len(fields) != 4 {
		t.Fatalf("a trust blob of %d fields", len(fields))
	}
	fields[2] = strconv.Itoa(port)
	return object{"trustBlob": strings.Join(fields, "\t"), "friendlyName": "site " + strconv.Itoa(s.system), "description": ""}
}

// register makes another key server a peer, over a link of its own.
func (s *site) register(t testing.TB, other *site) answer {
	t.Helper()
	if other.direct {
		return s.ok(t, s.admin, "POST", "/api/trusted-servers", other.blob(t, peersPort))
	}
	if s.links[other.system] == nil {
		s.links[other.system] = newLink(t, other.host, other.external)
	}
	return s.ok(t, s.admin, "POST", "/api/trusted-servers", other.blob(t, s.links[other.system].port()))
}

func (s *site) trustCA(t testing.TB, other *site) {
	t.Helper()
	der, err := base64.StdEncoding.DecodeString(other.ok(t, other.admin, "GET", "/api/trust/local-info", nil).text("chain"))
	if err != nil {
		t.Fatal(err)
	}
	chain, err := pki.ParseChain(der)
	if err != nil || len(chain.Intermediates) != 1 {
		t.Fatalf("the chain of %d: %v", other.system, err)
	}
	s.ok(t, s.admin, "POST", "/api/trusted-cas", object{"certificate": base64.StdEncoding.EncodeToString(chain.Intermediates[0].Raw)})
}

// caOf finds the CA of another key server in the list of trusted CAs.
func (s *site) caOf(t testing.TB, other *site) object {
	t.Helper()
	own, _ := other.ok(t, other.admin, "GET", "/api/trust/local-info", nil).body["certificate"].(object)
	for _, ca := range s.ok(t, s.admin, "GET", "/api/trusted-cas", nil).list("trustedCAs") {
		if ca["subject"] == own["issuer"] {
			return object{"certificateId": ca["certificateId"]}
		}
	}
	t.Fatalf("the CA %v is not in the list", own["issuer"])
	return nil
}

// user is a principal of a key server that is logged in there.
type user struct {
	at      *site
	session string
	id      string // 16 hex digits
	decimal string
}

// The ids of built-in roles.
const (
	encryptor = "0000000000000003"
	exchanger = "0000000000000004"
)

// user makes a password principal that holds a built-in role.
func (s *site) user(t testing.TB, name, role string) user {
	t.Helper()
	const password = "a password for tests"
	a := s.ok(t, s.admin, "POST", "/api/principals/password", object{"name": name, "password": password, "roleIds": []string{role}})
	p, _ := a.body["principal"].(object)
	return user{at: s, session: s.login(t, name, password), id: p["id"].(string), decimal: p["principalId"].(string)}
}

func (s *site) login(t testing.TB, name, password string) string {
	t.Helper()
	return s.ok(t, "", "POST", "/api/sessions", object{"method": "password", "name": name, "password": password}).text("sessionId")
}

// expose lets a peer know of a principal, and answers the row.
func (s *site) expose(t testing.TB, u user, peer *site) string {
	t.Helper()
	a := s.ok(t, s.admin, "POST", "/api/principal-trusts", object{"principalId": u.id, "trustedServerSystemId": peer.system, "flag": "expose"})
	row, _ := a.body["principalTrust"].(object)
	return row["id"].(string)
}

// mint makes a key of the owner's key server with the given material.
func (u user) mint(t testing.TB, material string) (ttag string) {
	t.Helper()
	return u.at.ok(t, u.session, "POST", "/api/keys", object{
		"algorithm": "HMAC-SHA384", "material": base64.StdEncoding.EncodeToString([]byte(material)),
	}).text("ttag")
}

// entry is the body of a change of somebody's entry.
func entry(ttag string, of user, rights ...string) object {
	o := object{"ttag": ttag, "systemId": of.at.system, "principalId": of.decimal}
	if len(rights) > 0 {
		o["rights"] = rights
	}
	return o
}

func (u user) grant(t testing.TB, ttag string, to user, rights ...string) {
	t.Helper()
	u.at.ok(t, u.session, "POST", "/api/keys/acl/grant", entry(ttag, to, rights...))
}

// pair is a principal and a key of another key server that it may use.
type pair struct {
	caller, owner user
	ttag          string
	row           string // that exposes the caller
}

const material = "the key that stays at home"

// share makes a caller at one key server and lets it use a key of another one.
func share(t testing.TB, from, to *site, name string, rights ...string) pair {
	t.Helper()
	p := pair{caller: from.user(t, name+" caller", encryptor), owner: to.user(t, name+" owner", encryptor)}
	p.ttag = p.owner.mint(t, material)
	p.row = from.expose(t, p.caller, to)
	p.owner.grant(t, p.ttag, p.caller, rights...)
	return p
}

// ask is the caller's question whether it may use the key.
func (p pair) ask(t testing.TB) answer {
	t.Helper()
	return p.caller.at.send(t, p.caller.session, "POST", "/api/keys/authorize", object{"ttag": p.ttag})
}

// connections are how many a key server has to a peer, which take calls in turn.
const connections = 2

// works waits until the peer is asked again over every connection: after a
// failure it is not, for a moment.
func (p pair) works(t testing.TB) {
	t.Helper()
	soon(t, "the peer answers", func() bool {
		for range connections {
			if p.ask(t).status != http.StatusOK {
				return false
			}
		}
		return true
	})
}
