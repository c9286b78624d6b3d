package processes

import (
	"crypto/rand"
	"crypto/tls"
	"net/http"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

const largest = 16 << 20

// Every forwarded operation, in each of the six directions. Both sides have rows under one request
// id, and the third key server has none.
func TestEveryOperationEachWay(t *testing.T) { onEach(t, everyOperationEachWay) }

func everyOperationEachWay(t *testing.T, on database) {
	a, b, c := three(t, on)
	for _, way := range [][3]*site{{a, b, c}, {b, a, c}, {a, c, b}, {c, a, b}, {b, c, a}, {c, b, a}} {
		from, to, third := way[0], way[1], way[2]
		name := from.host + " to " + to.host
		t.Run(name, func(t *testing.T) {
			p := share(t, from, to, name, "OWNER")
			everyOperation(t, p, third, name)
			lookup(t, p)
			metadata(t, p)
		})
	}
}

func everyOperation(t *testing.T, p pair, third *site, name string) {
	t.Helper()
	from, to, call := p.from, p.to, p.caller.Session
	guest := from.User(t, name+" guest", keyserver.RoleExchanger)
	const read, write = `"readACL allowed"`, `"amendACL allowed"`
	verified := func(a rig.Answer) bool { return a.Body["verified"] == true }
	for _, tc := range []struct {
		path  string
		body  rig.Object
		trail string
		right func(rig.Answer) bool
	}{
		{"/api/keys/authorize", rig.Object{"ttag": p.ttag, "filename": "/a/file"}, `["authorizeKey allowed"]`, func(a rig.Answer) bool {
			return a.Body["authorized"] == true && rig.Number(a.Body["systemId"]) == rig.Number(float64(to.System)) && a.Body["filenameAudited"] == true
		}},
		{"/api/crypto/hmac", hmacOf(p.ttag, messageOf(64)), `["hmacData allowed"]`, func(a rig.Answer) bool { return a.Field("mac") == macOf(messageOf(64)) }},
		{"/api/crypto/hmac", hmacOf(p.ttag, messageOf(largest)), `["hmacData allowed"]`, func(a rig.Answer) bool { return a.Field("mac") == macOf(messageOf(largest)) }},
		{"/api/keys/acl/grant", guest.Entry(p.ttag, "WRITE"), "[" + read + " " + write + " " + read + "]", verified},
		{"/api/keys/acl/update", guest.Entry(p.ttag, "READ"), "[" + read + " " + write + " " + read + "]", verified},
		{"/api/keys/acl/get", rig.Object{"ttag": p.ttag}, "[" + read + "]", func(a rig.Answer) bool {
			acl, _ := a.Body["acl"].(rig.Object)
			return rig.Number(acl["entryCount"]) == "3"
		}},
		{"/api/keys/acl/revoke", guest.Entry(p.ttag), "[" + read + " " + write + " " + read + "]", verified},
	} {
		out := from.OK(t, call, "POST", tc.path, tc.body)
		if !tc.right(out) {
			t.Errorf("%s answers %v", tc.path, out.Body)
		}
		for _, s := range []*site{from, to} {
			if got := s.trail(t, out.RequestID); got != tc.trail {
				t.Errorf("%s, at %d: %s, want %s", tc.path, s.System, got, tc.trail)
			}
		}
		if rows := third.Rows(t, out.RequestID); len(rows) != 0 {
			t.Errorf("%s: the third key server was asked: %v", tc.path, rows)
		}
		for _, row := range to.Rows(t, out.RequestID) {
			if rig.Number(row["systemId"]) != rig.Number(float64(from.System)) || row["sessionKind"] != "peer" {
				t.Errorf("%s: the row of the owner names %v", tc.path, row)
			}
		}
	}
}

func lookup(t *testing.T, p pair) {
	t.Helper()
	look := rig.Object{"principals": []rig.Object{{"systemId": p.to.System, "principalId": p.owner.Decimal}}}
	found := p.from.OK(t, p.caller.Session, "POST", "/api/principals/lookup", look)
	if list := found.List(t, "principals"); len(list) != 1 || list[0]["principalId"] != p.owner.Decimal || list[0]["disabled"] != false {
		t.Errorf("found %v", found.Body)
	}
	if got, want := p.from.trail(t, found.RequestID), `["lookupPrincipals allowed" "lookupPrincipals allowed"]`; got != want {
		t.Errorf("where it was asked: %s, want %s", got, want)
	}
	if got := p.to.trail(t, found.RequestID); got != `["lookupPrincipals allowed"]` {
		t.Errorf("where they belong: %s", got)
	}
}

// metadata checks that only a principal with a certificate can read the metadata of a key.
func metadata(t *testing.T, p pair) {
	t.Helper()
	from, to := p.from, p.to
	agent := from.agent(t, "agent for "+to.host)
	from.Expose(t, agent.ID, to.Site)
	p.owner.Grant(t, p.ttag, agent, "READ")
	refusal := from.Refused(t, p.caller.Session, "POST", "/api/keys/get", rig.Object{"ttag": p.ttag}, http.StatusForbidden, "ACCESS_DENIED")
	if got := from.trail(t, refusal.RequestID); got != `["readKeyMetadata refused notTransportPrincipal"]` {
		t.Errorf("with a password: %s", got)
	}
	got := agent.Site.OK(t, agent.Session, "POST", "/api/keys/get", rig.Object{"ttag": p.ttag})
	if got.Field("ttag") != p.ttag || got.Field("algorithm") != "HMAC-SHA384" || got.Body["keyBytes"] != float64(len(material)) || got.Body["algid"] != 1.0 || got.Body["ivBytes"] != 0.0 {
		t.Errorf("metadata: %v", got.Body)
	}
	for _, s := range []*site{from, to} {
		if trail := s.trail(t, got.RequestID); trail != `["readKeyMetadata allowed"]` {
			t.Errorf("at %d: %s", s.System, trail)
		}
	}
}

// agent enrols a certificate and logs in with it.
func (s *site) agent(t *testing.T, name string) rig.User {
	t.Helper()
	ca, err := pki.NewCA("CA of "+name, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s.TrustCA(t, ca.Certificate.Raw)
	holder := enginetest.NewAgent(t, ca, name, time.Now(), nil)
	transport := s.direction(t)
	transport.TLSClientConfig.Certificates = []tls.Certificate{{Certificate: [][]byte{holder.Certificate.Raw}, PrivateKey: holder.Key}}
	return s.Agent(t, holder.Certificate.Raw, &http.Client{Timeout: rig.Patience, Transport: transport}, keyserver.RoleExchanger)
}

// There is one hop only. A key of a key server that the caller's own does not know is not found, even
// if a peer knows that key server. No claim in a message overrides the identity of its connection.
func TestNoSecondHop(t *testing.T) { onEach(t, noSecondHop) }

func noSecondHop(t *testing.T, on database) {
	a, b, c := open(t, on, 2), open(t, on, 3), open(t, on, 4)
	for _, pair := range [][2]*site{{a, b}, {b, a}, {b, c}, {c, b}} {
		pair[0].Trust(t, pair[1].Site)
		pair[0].register(t, pair[1])
	}
	p := share(t, a, b, "hop", "READ")
	far := c.User(t, "owner", keyserver.RoleEncryptor).Mint(t, []byte(material))
	refusal := a.Refused(t, p.caller.Session, "POST", "/api/keys/authorize", rig.Object{"ttag": far}, http.StatusNotFound, "KEY_NOT_FOUND")
	for _, s := range []*site{b, c} {
		if rows := s.Rows(t, refusal.RequestID); len(rows) != 0 {
			t.Errorf("%d was asked: %v", s.System, rows)
		}
	}
	if p.ask(t).Status != http.StatusOK {
		t.Error("the peer that is known does not answer")
	}
}
