package processes

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// view is one state in the table of contract 6.1, for a peer and a principal trust, with the results of requests in
// both directions.
type view struct {
	asks     string // result for a caller of A and a key of B
	back     string // result for a caller of B and a key of A
	atA, atB int    // entries of the peer's principals in the ACL of the key at A or B
	row      string // flag of the principal trust of A's caller for B; "" for none
	peerAtA  bool   // B is registered at A
	peerAtB  bool   // A is registered at B
}

// The table of contract 6.1 for three processes: the effects of registering, removing and re-registering a peer and a
// CA on ACL entries, principal trusts and requests.
func TestStates(t *testing.T) { onEach(t, states) }

func states(t *testing.T, on database) {
	a, b, c := three(t, on)
	ab, ba, ac := share(t, a, b, "there", "READ"), share(t, b, a, "back", "READ"), share(t, a, c, "beside", "READ")
	peer := func(of *site) string { return "/api/trusted-servers/" + strconv.Itoa(of.System) }
	trustPath := func() string { return "/api/principal-trusts/" + ab.row }
	all := view{"OK", "OK", 1, 1, "expose", true, true}
	const closed, down, unknown = "ACCESS_DENIED", "PEER_UNAVAILABLE", "KEY_NOT_FOUND"
	transports := map[string]string{} // A's transport principal at B

	for _, step := range []struct {
		name string
		do   func(t *testing.T)
		want view
	}{
		{"BothRegistered", func(t *testing.T) { transports["first"] = b.transport(t, a) }, all},
		{"RowRestricts", func(t *testing.T) { a.OK(t, a.AsAdmin(t), "PUT", trustPath(), rig.Object{"flag": "restrict"}) }, view{closed, "OK", 1, 1, "restrict", true, true}},
		{"RowExposes", func(t *testing.T) {
			a.OK(t, a.AsAdmin(t), "PUT", trustPath(), rig.Object{"flag": "expose"})
			if got := ab.ask(t).Brief(); got != "OK" { // the change must not break connections
				t.Errorf("right after it: %s", got)
			}
		}, all},
		{"PeerRemovedByTheCallersSide", func(t *testing.T) {
			out := a.OK(t, a.AsAdmin(t), "DELETE", peer(b), nil)
			if orphans := out.List(t, "orphanedPrincipalTrusts"); len(orphans) != 1 || orphans[0]["id"] != ab.row {
				t.Errorf("orphans: %v", orphans)
			}
		}, view{unknown, down, 0, 1, "expose", false, true}}, // the entry of B's caller at A is deleted
		{"PeerRegisteredAgain", func(t *testing.T) {
			if out := a.register(t, b); !strings.Contains(out.Field("aclSideEffect"), "1 ACL row") {
				t.Errorf("resurrected: %v", out.Body)
			}
		}, all}, // the orphaned trust is valid again
		{"OrphanDeleted", func(t *testing.T) {
			a.OK(t, a.AsAdmin(t), "DELETE", peer(b), nil)
			a.OK(t, a.AsAdmin(t), "DELETE", trustPath(), nil)
			a.register(t, b)
		}, view{closed, "OK", 1, 1, "", true, true}},
		{"RowMadeAgain", func(t *testing.T) { ab.row = a.Expose(t, ab.caller.ID, b.Site) }, all},
		{"PeerRemovedByTheKeysSide", func(t *testing.T) {
			out := b.OK(t, b.AsAdmin(t), "DELETE", peer(a), nil)
			if !strings.Contains(out.Field("aclSideEffect"), "1 ACL row") {
				t.Errorf("purged: %v", out.Body)
			}
			if out := b.Send(t, b.AsAdmin(t), "GET", "/api/principals/"+transports["first"], nil); out.Status != 404 {
				t.Errorf("the transport principal stays: %v", out.Body)
			}
		}, view{down, unknown, 1, 0, "expose", true, false}},
		{"PeerRegisteredAgainByTheKeysSide", func(t *testing.T) {
			b.register(t, a)
			if now := b.transport(t, a); now == transports["first"] {
				t.Error("the transport principal that was removed is back")
			}
		}, all},
		{"TransportPrincipalDisabled", func(t *testing.T) {
			b.OK(t, b.AsAdmin(t), "PUT", "/api/principals/"+b.transport(t, a)+"/flags", rig.Object{"disabled": true})
			refusal := ab.ask(t)
			if got := b.trail(t, refusal.RequestID); refusal.Status != http.StatusForbidden || got != `["authorizeKey refused principalDisabled"]` {
				t.Errorf("refused with %d, and where the key is: %s", refusal.Status, got)
			}
		}, view{"PRINCIPAL_DISABLED", "OK", 1, 1, "expose", true, true}},
		{"TransportPrincipalEnabled", func(t *testing.T) {
			b.OK(t, b.AsAdmin(t), "PUT", "/api/principals/"+b.transport(t, a)+"/flags", rig.Object{"disabled": false})
		}, all},
		{"CARemovedByTheKeysSide", func(t *testing.T) {
			b.OK(t, b.AsAdmin(t), "POST", "/api/trusted-cas/remove", rig.Object{"certificateId": b.CAOf(t, a.Site)})
		}, view{down, down, 1, 1, "expose", true, true}},
		{"CATrustedAgain", func(t *testing.T) { b.Trust(t, a.Site) }, all},
		{"CARemovedByTheCallersSide", func(t *testing.T) {
			a.OK(t, a.AsAdmin(t), "POST", "/api/trusted-cas/remove", rig.Object{"certificateId": a.CAOf(t, b.Site)})
		}, view{down, down, 1, 1, "expose", true, true}},
		{"CATrustedAgainByTheCallersSide", func(t *testing.T) { a.Trust(t, b.Site) }, all},
	} { // each step begins with the state after the previous one
		ok := t.Run(step.name, func(t *testing.T) {
			step.do(t)
			look := func() view {
				return view{
					ab.ask(t).Brief(), ba.ask(t).Brief(), ba.entriesOf(t, b), ab.entriesOf(t, a), a.rowOf(t, ab.row), a.knows(t, b), b.knows(t, a),
				}
			}
			got := look()
			// A refusal takes effect immediately. After a failure, access returns only after a pause.
			if step.want.asks != "OK" && got.asks != step.want.asks || got.back == "OK" && step.want.back != "OK" {
				t.Errorf("right after it: %+v", got)
			}
			rig.Within(t, prompt, "the state that the contract has", func() bool { got = look(); return got == step.want || t.Failed() })
			ac.works(t) // requests to the third key server still work
		})
		if !ok {
			return
		}
	}
	// The state survives a restart.
	for _, s := range []*site{a, b} {
		s.server.Kill()
		s.start(t)
	}
	ab.works(t)
	ba.works(t)
}

// entriesOf counts the ACL entries of a key server's principals on the key.
func (p pair) entriesOf(t testing.TB, of *site) (n int) {
	t.Helper()
	at := p.to
	acl, _ := at.OK(t, p.owner.Session, "POST", "/api/keys/acl/get", rig.Object{"ttag": p.ttag}).Body["acl"].(rig.Object)
	entries, _ := acl["entries"].([]any)
	for _, e := range entries {
		if o, _ := e.(rig.Object); rig.Number(o["systemId"]) == strconv.Itoa(of.System) {
			n++
		}
	}
	return n
}

func (s *site) rowOf(t testing.TB, id string) string {
	t.Helper()
	for _, row := range s.OK(t, s.AsAdmin(t), "GET", "/api/principal-trusts", nil).List(t, "principalTrusts") {
		if row["id"] == id {
			return row["flagLabel"].(string)
		}
	}
	return ""
}

// record returns the record of a peer, or nil if it is not registered.
func (s *site) record(t testing.TB, peer *site) rig.Object {
	t.Helper()
	for _, r := range s.OK(t, s.AsAdmin(t), "GET", "/api/trusted-servers", nil).List(t, "trustedServers") {
		if rig.Number(r["systemId"]) == strconv.Itoa(peer.System) {
			return r
		}
	}
	return nil
}

func (s *site) knows(t testing.TB, peer *site) bool { return s.record(t, peer) != nil }

// transport returns the id of a peer's transport principal.
func (s *site) transport(t testing.TB, peer *site) string {
	t.Helper()
	decimal, _ := s.record(t, peer)["transportPrincipalId"].(string)
	id, err := values.ParseDecimalID(decimal)
	if err != nil {
		t.Fatal(err)
	}
	return id.Hex()
}
