package federation

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// The table of contract 6.1, between two key servers: what the state of a
// peer or a CA, on one side or the other, means for what is asked over it.
func TestStates(t *testing.T) {
	between(t, func(t *testing.T, a, b *site) {
		owner := b.user(t, "owner", keyserver.RoleEncryptor)
		caller := a.user(t, "caller", keyserver.RoleExchanger)
		row := a.expose(t, caller.id, b)
		ttag := owner.mint(t, nil)
		owner.grant(t, ttag, caller, "READ")
		ask := object{"ttag": ttag}
		peer := func(of *site) string { return "/api/trusted-servers/" + number(float64(of.system)) }
		blob := func(of *site) object {
			text := of.ok(t, of.admin(t), "GET", "/api/trust/local-info", nil).text("trustBlob")
			return object{"trustBlob": text, "friendlyName": "again", "description": ""}
		}
		entries := func() int {
			acl, _ := b.ok(t, owner.session, "POST", "/api/keys/acl/get", ask).body["acl"].(object)
			n, _ := acl["entryCount"].(float64)
			return int(n)
		}
		granted := func(t *testing.T) {
			t.Helper()
			a.ok(t, caller.session, "POST", "/api/keys/authorize", ask)
		}
		refused := func(t *testing.T, status int, code string) {
			t.Helper()
			a.refused(t, caller.session, "POST", "/api/keys/authorize", ask, status, code)
		}
		// A peer that lost a connection, or was not let in, is asked again a
		// moment later.
		grantedSoon := func(t *testing.T) {
			t.Helper()
			soon(t, "the peer is asked again", func() bool {
				return a.send(t, caller.session, "POST", "/api/keys/authorize", ask).status == http.StatusOK
			})
		}

		steps := []struct {
			name string
			do   func(t *testing.T)
		}{
			{"BothRegistered", granted},
			{"CallerSideRemovesThePeer", func(t *testing.T) {
				out := a.ok(t, a.admin(t), "DELETE", peer(b), nil)
				if orphans := out.list("orphanedPrincipalTrusts"); len(orphans) != 1 || orphans[0]["id"] != row {
					t.Errorf("orphans: %v", orphans)
				}
				refused(t, http.StatusNotFound, "KEY_NOT_FOUND")
			}},
			{"CallerSideRegistersItAgain", func(t *testing.T) { // the orphan counts again
				a.ok(t, a.admin(t), "POST", "/api/trusted-servers", blob(b))
				grantedSoon(t)
			}},
			{"OrphanDeleted", func(t *testing.T) {
				a.ok(t, a.admin(t), "DELETE", peer(b), nil)
				a.ok(t, a.admin(t), "DELETE", "/api/principal-trusts/"+row, nil)
				a.ok(t, a.admin(t), "POST", "/api/trusted-servers", blob(b))
				refused(t, http.StatusForbidden, "ACCESS_DENIED")
				row = a.expose(t, caller.id, b)
				grantedSoon(t)
			}},
			{"FlagRestrict", func(t *testing.T) {
				a.ok(t, a.admin(t), "PUT", "/api/principal-trusts/"+row, object{"flag": "restrict"})
				refused(t, http.StatusForbidden, "ACCESS_DENIED")
				a.ok(t, a.admin(t), "PUT", "/api/principal-trusts/"+row, object{"flag": "expose"})
				granted(t)
			}},
			{"KeySideRemovesThePeer", func(t *testing.T) {
				out := b.ok(t, b.admin(t), "DELETE", peer(a), nil)
				if entries() != 1 || !strings.Contains(out.text("aclSideEffect"), "1 ACL row") {
					t.Errorf("purged: %s, %d entries left", out.raw, entries())
				}
				refused(t, http.StatusServiceUnavailable, "PEER_UNAVAILABLE")
			}},
			{"KeySideRegistersItAgain", func(t *testing.T) {
				out := b.ok(t, b.admin(t), "POST", "/api/trusted-servers", blob(a))
				if entries() != 2 || !strings.Contains(out.text("aclSideEffect"), "1 ACL row") {
					t.Errorf("resurrected: %s, %d entries", out.raw, entries())
				}
				grantedSoon(t)
			}},
			{"KeySideRemovesTheCA", func(t *testing.T) {
				id := b.caOf(t, a)
				b.ok(t, b.admin(t), "POST", "/api/trusted-cas/remove", object{"certificateId": id})
				if entries() != 2 {
					t.Errorf("removing a CA left %d entries", entries())
				}
				refused(t, http.StatusServiceUnavailable, "PEER_UNAVAILABLE")
				b.trustCA(t, a)
				grantedSoon(t)
			}},
			{"CallerSideRemovesTheCA", func(t *testing.T) {
				a.ok(t, a.admin(t), "POST", "/api/trusted-cas/remove", object{"certificateId": a.caOf(t, b)})
				refused(t, http.StatusServiceUnavailable, "PEER_UNAVAILABLE")
				a.trustCA(t, b)
				grantedSoon(t)
			}},
		}
		for _, s := range steps { // each begins where the one before it ended
			if !t.Run(s.name, s.do) {
				return
			}
		}
	})
}

// caOf finds the CA of another key server in the list of trusted CAs.
func (s *site) caOf(t testing.TB, other *site) string {
	t.Helper()
	want := other.ok(t, other.admin(t), "GET", "/api/trust/local-info", nil).body["certificate"].(object)["issuer"]
	for _, ca := range s.ok(t, s.admin(t), "GET", "/api/trusted-cas", nil).list("trustedCAs") {
		if ca["subject"] == want {
			return ca["certificateId"].(string)
		}
	}
	t.Fatalf("the CA %v is not in the list", want)
	return ""
}
