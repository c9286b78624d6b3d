package processes

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/pki"
	"github.com/keyserver-operator/keyserver-operator/test/program"
)

const largest = 16 << 20

// Everything that is forwarded, in each of the six directions, with rows on
// both sides under one request id and none at the third key server.
func TestEveryOperationEachWay(t *testing.T) { onEach(t, everyOperationEachWay) }

func everyOperationEachWay(t *testing.T, on database) {
	a, b, c := three(t, on)
	for _, way := range [][3]*site{{a, b, c}, {b, a, c}, {a, c, b}, {c, a, b}, {b, c, a}, {c, b, a}} {
		from, to, third := way[0], way[1], way[2]
		name := from.host + " to " + to.host
		t.Run(name, func(t *testing.T) {
			p := share(t, from, to, name, "OWNER")
			everyOperation(t, p, third, name)
			lookups(t, p)
			metadata(t, p)
		})
	}
}

func everyOperation(t *testing.T, p pair, third *site, name string) {
	t.Helper()
	from, to, call := p.caller.at, p.owner.at, p.caller.session
	guest := from.user(t, name+" guest", exchanger)
	const read, write = `"readACL allowed"`, `"amendACL allowed"`
	verified := func(a answer) bool { return a.body["verified"] == true }
	for _, tc := range []struct {
		path  string
		body  object
		trail string
		right func(answer) bool
	}{
		{"/api/keys/authorize", object{"ttag": p.ttag, "filename": "/a/file"}, `["authorizeKey allowed"]`, func(a answer) bool {
			return a.body["authorized"] == true && number(a.body["systemId"]) == number(float64(to.system)) && a.body["filenameAudited"] == true
		}},
		{"/api/crypto/hmac", hmacOf(p.ttag, messageOf(64)), `["hmacData allowed"]`, func(a answer) bool { return a.text("mac") == macOf(messageOf(64)) }},
		{"/api/crypto/hmac", hmacOf(p.ttag, messageOf(largest)), `["hmacData allowed"]`, func(a answer) bool { return a.text("mac") == macOf(messageOf(largest)) }},
		{"/api/keys/acl/grant", entry(p.ttag, guest, "WRITE"), "[" + read + " " + write + " " + read + "]", verified},
		{"/api/keys/acl/update", entry(p.ttag, guest, "READ"), "[" + read + " " + write + " " + read + "]", verified},
		{"/api/keys/acl/get", object{"ttag": p.ttag}, "[" + read + "]", func(a answer) bool {
			acl, _ := a.body["acl"].(object)
			return number(acl["entryCount"]) == "3"
		}},
		{"/api/keys/acl/revoke", entry(p.ttag, guest), "[" + read + " " + write + " " + read + "]", verified},
	} {
		out := from.ok(t, call, "POST", tc.path, tc.body)
		if !tc.right(out) {
			t.Errorf("%s answers %v", tc.path, out.body)
		}
		for _, s := range []*site{from, to} {
			if got := s.trail(t, out.requestID); got != tc.trail {
				t.Errorf("%s, at %d: %s, want %s", tc.path, s.system, got, tc.trail)
			}
		}
		if rows := third.rows(t, out.requestID); len(rows) != 0 {
			t.Errorf("%s: the third key server was asked: %v", tc.path, rows)
		}
		for _, row := range to.rows(t, out.requestID) {
			if number(row["systemId"]) != number(float64(from.system)) || row["sessionKind"] != "peer" {
				t.Errorf("%s: the row of the owner names %v", tc.path, row)
			}
		}
	}
}

// lookups has a principal looked up where it belongs, and sees the entries of
// one closed that is disabled there, and of one that is not there at all.
func lookups(t *testing.T, p pair) {
	t.Helper()
	from, to := p.caller.at, p.owner.at
	gone := user{at: to, decimal: "987654321"}
	own := p.caller.mint(t, material)
	p.caller.grant(t, own, p.owner, "READ")
	p.caller.grant(t, own, gone, "READ")
	look := object{"principals": []object{entry("", p.owner), entry("", gone)}}
	for _, o := range look["principals"].([]object) {
		delete(o, "ttag")
	}
	closed := func(of user) bool {
		acl, _ := from.ok(t, p.caller.session, "POST", "/api/keys/acl/get", object{"ttag": own}).body["acl"].(object)
		entries, _ := acl["entries"].([]any)
		return slices.ContainsFunc(entries, func(e any) bool {
			o, _ := e.(object)
			return o["principalId"] == of.decimal && o["endTimeUnset"] == false
		})
	}
	found := from.ok(t, p.caller.session, "POST", "/api/principals/lookup", look)
	if list := found.list("principals"); len(list) != 1 || list[0]["principalId"] != p.owner.decimal || list[0]["disabled"] != false {
		t.Errorf("found %v", found.body)
	}
	if closed(p.owner) || !closed(gone) {
		t.Errorf("closed: of the principal that is there %v, of the other %v", closed(p.owner), closed(gone))
	}
	to.ok(t, to.admin, "PUT", "/api/principals/"+p.owner.id+"/flags", object{"disabled": true})
	found = from.ok(t, p.caller.session, "POST", "/api/principals/lookup", look)
	if list := found.list("principals"); len(list) != 1 || list[0]["disabled"] != true || !closed(p.owner) {
		t.Errorf("disabled at home: found %v, closed %v", found.body, closed(p.owner))
	}
	if got, want := from.trail(t, found.requestID), `["lookupPrincipals allowed" "lookupPrincipals allowed" "closeACLEntries allowed"]`; got != want {
		t.Errorf("where it was asked: %s, want %s", got, want)
	}
	if got := to.trail(t, found.requestID); got != `["lookupPrincipals allowed"]` {
		t.Errorf("where they belong: %s", got)
	}
	to.ok(t, to.admin, "PUT", "/api/principals/"+p.owner.id+"/flags", object{"disabled": false})
}

// metadata is read by somebody who has a certificate; nobody else may.
func metadata(t *testing.T, p pair) {
	t.Helper()
	from, to := p.caller.at, p.owner.at
	agent := from.agent(t, "agent for "+to.host)
	from.expose(t, agent, to)
	p.owner.grant(t, p.ttag, agent, "READ")
	refusal := from.refused(t, p.caller.session, "/api/keys/get", object{"ttag": p.ttag}, "ACCESS_DENIED")
	if got := from.trail(t, refusal.requestID); got != `["readKeyMetadata refused notTransportPrincipal"]` {
		t.Errorf("with a password: %s", got)
	}
	got := from.ok(t, agent.session, "POST", "/api/keys/get", object{"ttag": p.ttag})
	if got.text("ttag") != p.ttag || got.text("algorithm") != "HMAC-SHA384" || number(got.body["keyBytes"]) != number(float64(len(material))) {
		t.Errorf("metadata: %v", got.body)
	}
	for _, s := range []*site{from, to} {
		if trail := s.trail(t, got.requestID); trail != `["readKeyMetadata allowed"]` {
			t.Errorf("at %d: %s", s.system, trail)
		}
	}
}

// agent enrols a certificate and logs in with it.
func (s *site) agent(t testing.TB, name string) user {
	t.Helper()
	ca, err := pki.NewCA("CA of "+name, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s.ok(t, s.admin, "POST", "/api/trusted-cas", object{"certificate": base64.StdEncoding.EncodeToString(ca.Certificate.Raw)})
	holder := enginetest.NewAgent(t, ca, name, time.Now(), nil)
	enrolled := s.ok(t, s.admin, "POST", "/api/certificates/enroll", object{
		"certificates": []string{base64.StdEncoding.EncodeToString(holder.Certificate.Raw)}, "roleIds": []string{exchanger},
	})
	roots, err := program.Roots(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	transport := program.Transport(roots, func() string { return s.server.Address })
	transport.TLSClientConfig.Certificates = []tls.Certificate{{Certificate: [][]byte{holder.Certificate.Raw}, PrivateKey: holder.Key}}
	t.Cleanup(transport.CloseIdleConnections)
	over := *s
	over.http = &http.Client{Timeout: patience, Transport: transport}
	p := enrolled.list("principals")[0]
	return user{
		at: s, id: p["id"].(string), decimal: p["principalId"].(string),
		session: over.ok(t, "", "POST", "/api/sessions", object{"method": "certificate"}).text("sessionId"),
	}
}

// One hop: a key of a key server that the caller's own does not know is
// nobody's, although a peer of it knows it; and no claim in a message changes
// whose connection it came over.
func TestNoSecondHop(t *testing.T) { onEach(t, noSecondHop) }

func noSecondHop(t *testing.T, on database) {
	a, b, c := open(t, on, 2), open(t, on, 3), open(t, on, 4)
	for _, pair := range [][2]*site{{a, b}, {b, a}, {b, c}, {c, b}} {
		pair[0].trustCA(t, pair[1])
		pair[0].register(t, pair[1])
	}
	p := share(t, a, b, "hop", "READ")
	far := c.user(t, "owner", encryptor).mint(t, material)
	refusal := a.refused(t, p.caller.session, "/api/keys/authorize", object{"ttag": far}, "KEY_NOT_FOUND")
	for _, s := range []*site{b, c} {
		if rows := s.rows(t, refusal.requestID); len(rows) != 0 {
			t.Errorf("%d was asked: %v", s.system, rows)
		}
	}
	if p.ask(t).status != http.StatusOK {
		t.Error("the peer that is known does not answer")
	}
}
