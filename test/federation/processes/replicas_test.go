package processes

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// staleness is the maximum age of the state that a replica uses.
const staleness = time.Second

// replica starts another process of a key server, on the same database and with the same system id.
func (s *site) replica(t *testing.T) *site {
	t.Helper()
	r := newSite(s.System, s.host, rig.FreeAddress(t, s.host))
	r.dir, r.state, r.links, r.binary = filepath.Join(t.TempDir(), "data"), s.state, s.links, s.binary
	r.Administrator = s.Administrator
	// Both replicas need the same key-encryption key.
	kek, err := os.ReadFile(filepath.Join(s.dir, "kek"))
	if err == nil {
		err = os.Mkdir(r.dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(r.dir, "kek"), kek, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.run(t)
	return r
}

// asTwo returns a key server and a peer with two processes. The requests of the key server go to one process at a time.
func asTwo(t *testing.T) (a, first, second *site) {
	t.Helper()
	a, first = open(t, sqlite, 2), open(t, postgreSQL, 3)
	registerEachOther(t, a, first)
	second = first.replica(t)
	// A session is valid at both processes.
	second.OK(t, first.AsAdmin(t), "GET", "/api/sessions/current", nil)
	return a, first, second
}

// A request whose response one replica cannot send, and that is then sent to the other replica, takes effect once. Both
// replicas know the requests of the peer.
func TestRepeatedAtAnotherReplica(t *testing.T) {
	a, first, second := asTwo(t)
	p := share(t, a, first, "replicas", "OWNER")
	p.works(t)
	over := a.links[first.System]
	// repeated sends a request. When the first replica has executed it and its response is lost,
	// the request goes to the other replica.
	repeated := func(t *testing.T, from, to *site, path string, body rig.Object, done func(id string) bool) *pending {
		t.Helper()
		over.lead(from.external)
		p.works(t)
		over.hold(false, true)
		asked := a.begin(t, p.caller.Session, path, body)
		rig.Soon(t, "the replica does it", func() bool { return done(asked.id) })
		over.lead(to.external)
		over.hold(false, false)
		return asked
	}
	for name, way := range map[string][2]*site{"FirstThenSecond": {first, second}, "SecondThenFirst": {second, first}} {
		t.Run(name+"/Use", func(t *testing.T) {
			for _, call := range []struct {
				path, operation string
				body            func(ttag string) rig.Object
			}{
				{"/api/keys/authorize", "authorizeKey", func(ttag string) rig.Object { return rig.Object{"ttag": ttag} }},
				{"/api/crypto/hmac", "hmacData", func(ttag string) rig.Object { return hmacOf(ttag, messageOf(64)) }},
			} {
				ttag := p.owner.Mint(t, []byte(material))
				once := p.caller.Entry(ttag, "READ")
				once["maxUsage"] = 1
				first.OK(t, p.owner.Session, "POST", "/api/keys/acl/grant", once)
				before := first.remembered(t)
				asked := repeated(t, way[0], way[1], call.path, call.body(ttag), func(string) bool { return first.remembered(t) > before })
				if out := asked.wait(t); out.Status != http.StatusOK {
					t.Errorf("%s, repeated: %d %v", call.path, out.Status, out.Body)
				}
				row := strconv.Quote(call.operation + " allowed")
				if got, want := first.trail(t, asked.id), "["+row+" "+row+"]"; got != want {
					t.Errorf("%s, where the key is: %s, want %s", call.path, got, want)
				}
				a.Refused(t, p.caller.Session, "POST", "/api/keys/authorize", rig.Object{"ttag": ttag}, http.StatusForbidden, "ACL_DENIED")
			}
		})
		t.Run(name+"/Change", func(t *testing.T) {
			guest := a.User(t, "guest of "+name, keyserver.RoleExchanger)
			_, cursor := first.Changes(t, first.AsAdmin(t), "0")
			asked := repeated(t, way[0], way[1], "/api/keys/acl/grant", guest.Entry(p.ttag, "READ"), func(id string) bool {
				if !strings.Contains(first.trail(t, id), "amendACL") { // before that, it reads the ACL
					over.pulse()
				}
				return keyChanges(t, first, cursor) > 0
			})
			if out := asked.wait(t); out.Status != http.StatusOK || out.Body["verified"] != true {
				t.Errorf("repeated: %d %v", out.Status, out.Body)
			}
			if n := keyChanges(t, first, cursor); n != 1 {
				t.Errorf("the list changed %d times", n)
			}
			if got := first.trail(t, asked.id); strings.Count(got, "amendACL allowed") != 2 {
				t.Errorf("where the key is: %s", got)
			}
		})
	}
	first.verifyTrail(t)
}

// remembered counts the calls of peers that took effect and may be repeated. The API does not show when a use was
// counted.
func (s *site) remembered(t *testing.T) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.state[1])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM peer_calls`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A change at one replica takes effect at the other replica within the maximum staleness. After that, no request is
// allowed, although the connections of the peer stay open.
func TestShutOutAtAnotherReplica(t *testing.T) {
	a, first, second := asTwo(t)
	p := share(t, a, first, "shut out", "READ")
	a.links[first.System].lead(second.external)
	peer := "/api/trusted-servers/" + strconv.Itoa(a.System)
	for _, tc := range []struct {
		name       string
		shut, open func(t *testing.T)
		code       string
	}{
		{
			"EntryRevoked",
			func(t *testing.T) {
				first.OK(t, p.owner.Session, "POST", "/api/keys/acl/revoke", p.caller.Entry(p.ttag))
			},
			func(t *testing.T) { p.owner.Grant(t, p.ttag, p.caller, "READ") },
			"ACL_DENIED",
		},
		{
			"TransportPrincipalDisabled",
			func(t *testing.T) {
				first.OK(t, first.AsAdmin(t), "PUT", "/api/principals/"+first.transport(t, a)+"/flags", rig.Object{"disabled": true})
			},
			func(t *testing.T) {
				first.OK(t, first.AsAdmin(t), "PUT", "/api/principals/"+first.transport(t, a)+"/flags", rig.Object{"disabled": false})
			},
			"PRINCIPAL_DISABLED",
		},
		{
			"CARemoved",
			func(t *testing.T) {
				first.OK(t, first.AsAdmin(t), "POST", "/api/trusted-cas/remove", rig.Object{"certificateId": first.CAOf(t, a.Site)})
			},
			func(t *testing.T) { first.Trust(t, a.Site) },
			"PEER_UNAVAILABLE",
		},
		{
			"PeerRemoved",
			func(t *testing.T) { first.OK(t, first.AsAdmin(t), "DELETE", peer, nil) },
			func(t *testing.T) { first.register(t, a) },
			"PEER_UNAVAILABLE",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p.works(t)
			tc.shut(t)
			time.Sleep(staleness)
			rig.Soon(t, tc.code, func() bool { // a replica that is not current has another error code
				out := p.ask(t)
				if out.Status == http.StatusOK || strings.Contains(first.trail(t, out.RequestID), "allowed") {
					t.Errorf("let in: %d %v", out.Status, out.Body)
				}
				return out.Brief() == tc.code || t.Failed()
			})
			tc.open(t)
		})
	}
	p.works(t)
	if n := strings.Count(second.server.Log(), "closing the connection of a peer that is no longer trusted"); n == 0 {
		t.Errorf("the other replica closed nothing:\n%s", second.server.Log())
	}
	first.verifyTrail(t)
}
