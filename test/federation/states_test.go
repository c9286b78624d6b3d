package federation

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// prompt is less than the minute after which everything is looked at again in
// any case: within it something has been told of the change.
const prompt = 30 * time.Second

// The table of contract 6.1, between two key servers: what the state of a
// peer or a CA, on one side or the other, means for what is asked over it.
func TestStates(t *testing.T) {
	between(t, func(t *testing.T, a, b *site) {
		owner := b.User(t, "owner", keyserver.RoleEncryptor)
		caller := a.User(t, "caller", keyserver.RoleExchanger)
		row := a.Expose(t, caller.ID, b.Site)
		ttag := owner.Mint(t, nil)
		owner.Grant(t, ttag, caller, "READ")
		ask := rig.Object{"ttag": ttag}
		peer := func(of *site) string { return "/api/trusted-servers/" + rig.Number(float64(of.System)) }
		blob := func(of *site) rig.Object {
			text := of.OK(t, of.AsAdmin(t), "GET", "/api/trust/local-info", nil).Field("trustBlob")
			return rig.Object{"trustBlob": text, "friendlyName": "again", "description": ""}
		}
		entries := func() int {
			acl, _ := b.OK(t, owner.Session, "POST", "/api/keys/acl/get", ask).Body["acl"].(rig.Object)
			n, _ := acl["entryCount"].(float64)
			return int(n)
		}
		granted := func(t *testing.T) {
			t.Helper()
			a.OK(t, caller.Session, "POST", "/api/keys/authorize", ask)
		}
		refused := func(t *testing.T, status int, code string) {
			t.Helper()
			a.Refused(t, caller.Session, "POST", "/api/keys/authorize", ask, status, code)
		}
		// A peer that lost a connection, or was not let in, is asked again a
		// moment later.
		grantedSoon := func(t *testing.T) {
			t.Helper()
			rig.Within(t, prompt, "the peer is asked again", func() bool {
				return a.Send(t, caller.Session, "POST", "/api/keys/authorize", ask).Status == http.StatusOK
			})
		}

		steps := []struct {
			name string
			do   func(t *testing.T)
		}{
			{"BothRegistered", granted},
			{"CallerSideRemovesThePeer", func(t *testing.T) {
				out := a.OK(t, a.AsAdmin(t), "DELETE", peer(b), nil)
				if orphans := out.List(t, "orphanedPrincipalTrusts"); len(orphans) != 1 || orphans[0]["id"] != row {
					t.Errorf("orphans: %v", orphans)
				}
				refused(t, http.StatusNotFound, "KEY_NOT_FOUND")
			}},
			{"CallerSideRegistersItAgain", func(t *testing.T) { // the orphan counts again
				a.OK(t, a.AsAdmin(t), "POST", "/api/trusted-servers", blob(b))
				grantedSoon(t)
			}},
			{"OrphanDeleted", func(t *testing.T) {
				a.OK(t, a.AsAdmin(t), "DELETE", peer(b), nil)
				a.OK(t, a.AsAdmin(t), "DELETE", "/api/principal-trusts/"+row, nil)
				a.OK(t, a.AsAdmin(t), "POST", "/api/trusted-servers", blob(b))
				refused(t, http.StatusForbidden, "ACCESS_DENIED")
				row = a.Expose(t, caller.ID, b.Site)
				grantedSoon(t)
			}},
			{"FlagRestrict", func(t *testing.T) {
				a.OK(t, a.AsAdmin(t), "PUT", "/api/principal-trusts/"+row, rig.Object{"flag": "restrict"})
				refused(t, http.StatusForbidden, "ACCESS_DENIED")
				a.OK(t, a.AsAdmin(t), "PUT", "/api/principal-trusts/"+row, rig.Object{"flag": "expose"})
				granted(t)
			}},
			{"KeySideRemovesThePeer", func(t *testing.T) {
				out := b.OK(t, b.AsAdmin(t), "DELETE", peer(a), nil)
				if entries() != 1 || !strings.Contains(out.Field("aclSideEffect"), "1 ACL row") {
					t.Errorf("purged: %s, %d entries left", out.Raw, entries())
				}
				refused(t, http.StatusServiceUnavailable, "PEER_UNAVAILABLE")
			}},
			{"KeySideRegistersItAgain", func(t *testing.T) {
				out := b.OK(t, b.AsAdmin(t), "POST", "/api/trusted-servers", blob(a))
				if entries() != 2 || !strings.Contains(out.Field("aclSideEffect"), "1 ACL row") {
					t.Errorf("resurrected: %s, %d entries", out.Raw, entries())
				}
				grantedSoon(t)
			}},
			{"KeySideRemovesTheCA", func(t *testing.T) {
				id := b.CAOf(t, a.Site)
				b.OK(t, b.AsAdmin(t), "POST", "/api/trusted-cas/remove", rig.Object{"certificateId": id})
				if entries() != 2 {
					t.Errorf("removing a CA left %d entries", entries())
				}
				refused(t, http.StatusServiceUnavailable, "PEER_UNAVAILABLE")
				b.Trust(t, a.Site)
				grantedSoon(t)
			}},
			{"CallerSideRemovesTheCA", func(t *testing.T) {
				a.OK(t, a.AsAdmin(t), "POST", "/api/trusted-cas/remove", rig.Object{"certificateId": a.CAOf(t, b.Site)})
				refused(t, http.StatusServiceUnavailable, "PEER_UNAVAILABLE")
				a.Trust(t, b.Site)
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
