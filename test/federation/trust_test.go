package federation

import (
	"net/http"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// A restriction on the side of the key refuses a peer's principal whatever the
// list says.
func TestRestrictedHere(t *testing.T) {
	between(t, func(t *testing.T, a, b *site) {
		owner := b.user(t, "owner", keyserver.RoleEncryptor)
		caller := a.user(t, "caller", keyserver.RoleExchanger)
		unlisted := a.user(t, "unlisted", keyserver.RoleExchanger)
		a.expose(t, caller.id, b)
		ttag := owner.mint(t, nil)
		owner.grant(t, ttag, caller, "READ")
		ask := object{"ttag": ttag}
		a.ok(t, caller.session, "POST", "/api/keys/authorize", ask)
		trust := func(id, flag string) object {
			return object{"principalId": id, "trustedServerSystemId": a.system, "flag": flag}
		}

		// Nobody of the peer is exposed from here, and no typing error restricted.
		b.refused(t, b.admin(t), "POST", "/api/principal-trusts", trust(caller.id, "expose"), http.StatusNotFound, "NOT_FOUND")
		b.refused(t, b.admin(t), "POST", "/api/principal-trusts", trust("00000000deadbeef", "restrict"), http.StatusNotFound, "NOT_FOUND")

		made := b.ok(t, b.admin(t), "POST", "/api/principal-trusts", trust(caller.id, "restrict"))
		row, _ := made.body["principalTrust"].(object)
		if made.body["saved"] != true || row["principalId"] != caller.id {
			t.Errorf("restricted: %s", made.raw)
		}
		b.ok(t, b.admin(t), "POST", "/api/principal-trusts", trust(unlisted.id, "restrict")) // has no entry here, but its home knows it
		refusal := a.refused(t, caller.session, "POST", "/api/keys/authorize", ask, http.StatusForbidden, "ACCESS_DENIED")
		if got := brief(b.rows(t, refusal.requestID)); got != "[authorizeKey refused restricted]" {
			t.Errorf("where the key is: %s", got)
		}
		if got := brief(a.rows(t, refusal.requestID)); got != "[authorizeKey allowed  authorizeKey failed restricted]" {
			t.Errorf("where it was asked: %s", got)
		}
		id, _ := row["id"].(string)
		b.ok(t, b.admin(t), "DELETE", "/api/principal-trusts/"+id, nil)
		a.ok(t, caller.session, "POST", "/api/keys/authorize", ask)

		// A peer that is down keeps nobody from restricting its principals.
		a.Stop(t)
		b.ok(t, b.admin(t), "POST", "/api/principal-trusts", trust("00000000deadbeef", "restrict"))
	})
}

// A transport principal that is disabled shuts its key server out.
func TestTransportPrincipalDisabled(t *testing.T) {
	between(t, func(t *testing.T, a, b *site) {
		owner := b.user(t, "owner", keyserver.RoleEncryptor)
		caller := a.user(t, "caller", keyserver.RoleExchanger)
		a.expose(t, caller.id, b)
		ttag := owner.mint(t, nil)
		owner.grant(t, ttag, caller, "READ")
		transport := b.ok(t, b.admin(t), "GET", "/api/trusted-servers", nil).list("trustedServers")[0]["transportPrincipalId"]
		id, err := keyserver.ParseDecimalID(transport.(string))
		if err != nil {
			t.Fatal(err)
		}
		flags := "/api/principals/" + id.Hex() + "/flags"
		b.ok(t, b.admin(t), "PUT", flags, object{"disabled": true})
		refusal := a.refused(t, caller.session, "POST", "/api/keys/authorize", object{"ttag": ttag}, http.StatusForbidden, "PRINCIPAL_DISABLED")
		if got := brief(b.rows(t, refusal.requestID)); got != "[authorizeKey refused principalDisabled]" {
			t.Errorf("where the key is: %s", got)
		}
		b.ok(t, b.admin(t), "PUT", flags, object{"disabled": false})
		a.ok(t, caller.session, "POST", "/api/keys/authorize", object{"ttag": ttag})
	})
}
