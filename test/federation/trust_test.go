package federation

import (
	"net/http"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// The key server that owns a key rejects a principal of a peer that it restricts, even if the ACL allows the use.
func TestRestrictedHere(t *testing.T) {
	between(t, func(t *testing.T, a, b *site) {
		owner := b.User(t, "owner", keyserver.RoleEncryptor)
		caller := a.User(t, "caller", keyserver.RoleExchanger)
		unlisted := a.User(t, "unlisted", keyserver.RoleExchanger)
		a.Expose(t, caller.ID, b.Site)
		ttag := owner.Mint(t, nil)
		owner.Grant(t, ttag, caller, "READ")
		ask := rig.Object{"ttag": ttag}
		a.OK(t, caller.Session, "POST", "/api/keys/authorize", ask)
		trust := func(id, flag string) rig.Object {
			return rig.Object{"principalId": id, "trustedServerSystemId": a.System, "flag": flag}
		}

		// Only local principals can be exposed. The peer must know a restricted principal.
		b.Refused(t, b.AsAdmin(t), "POST", "/api/principal-trusts", trust(caller.ID, "expose"), http.StatusNotFound, "NOT_FOUND")
		b.Refused(t, b.AsAdmin(t), "POST", "/api/principal-trusts", trust("00000000deadbeef", "restrict"), http.StatusNotFound, "NOT_FOUND")

		made := b.OK(t, b.AsAdmin(t), "POST", "/api/principal-trusts", trust(caller.ID, "restrict"))
		row, _ := made.Body["principalTrust"].(rig.Object)
		if made.Body["saved"] != true || row["principalId"] != caller.ID {
			t.Errorf("restricted: %s", made.Raw)
		}
		b.OK(t, b.AsAdmin(t), "POST", "/api/principal-trusts", trust(unlisted.ID, "restrict")) // no local entry, but its home knows it
		refusal := a.Refused(t, caller.Session, "POST", "/api/keys/authorize", ask, http.StatusForbidden, "ACCESS_DENIED")
		if got := rig.FormatRows(b.Rows(t, refusal.RequestID)); got != `["authorizeKey refused restricted"]` {
			t.Errorf("where the key is: %s", got)
		}
		if got := rig.FormatRows(a.Rows(t, refusal.RequestID)); got != `["authorizeKey allowed" "authorizeKey failed restricted"]` {
			t.Errorf("where it was asked: %s", got)
		}
		id, _ := row["id"].(string)
		b.OK(t, b.AsAdmin(t), "DELETE", "/api/principal-trusts/"+id, nil)
		a.OK(t, caller.Session, "POST", "/api/keys/authorize", ask)

		// A principal of a peer can be restricted while the peer is down.
		a.Stop(t)
		b.OK(t, b.AsAdmin(t), "POST", "/api/principal-trusts", trust("00000000deadbeef", "restrict"))
	})
}

// A restriction of a peer's group rejects its members as long as they are members.
func TestRestrictedGroup(t *testing.T) {
	between(t, func(t *testing.T, a, b *site) {
		owner := b.User(t, "owner", keyserver.RoleEncryptor)
		caller := a.User(t, "caller", keyserver.RoleExchanger)
		group := a.OK(t, a.AsAdmin(t), "POST", "/api/principals/groups", rig.Object{"name": "shut out"}).Text(t, "principal", "id")
		membership := "/api/principals/groups/" + group + "/members/" + caller.ID
		a.Expose(t, caller.ID, b.Site)
		ttag := owner.Mint(t, nil)
		owner.Grant(t, ttag, caller, "READ")
		ask := rig.Object{"ttag": ttag}
		b.TrustPrincipal(t, group, a.Site, "restrict")
		a.OK(t, caller.Session, "POST", "/api/keys/authorize", ask)
		a.OK(t, a.AsAdmin(t), "PUT", membership, nil)
		refusal := a.Refused(t, caller.Session, "POST", "/api/keys/authorize", ask, http.StatusForbidden, "ACCESS_DENIED")
		if got := rig.FormatRows(b.Rows(t, refusal.RequestID)); got != `["authorizeKey refused restricted"]` {
			t.Errorf("where the key is: %s", got)
		}
		a.OK(t, a.AsAdmin(t), "DELETE", membership, nil)
		a.OK(t, caller.Session, "POST", "/api/keys/authorize", ask)
	})
}
