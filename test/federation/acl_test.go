package federation

import (
	"net/http"
	"slices"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// entry returns a user's entry in a response of the ACL routes.
func entry(a rig.Answer, of rig.User) rig.Object {
	acl, _ := a.Body["acl"].(rig.Object)
	entries, _ := acl["entries"].([]any)
	for _, e := range entries {
		if o, _ := e.(rig.Object); o["principalId"] == of.Decimal && o["systemId"] == float64(of.Site.System) {
			return o
		}
	}
	return nil
}

func right(o rig.Object, name string) bool {
	names, _ := o["rightNames"].([]any)
	return slices.Contains(names, any(name))
}

// An owner that is a principal of another key server reads, grants, amends and revokes entries in the ACL of a key. The
// key's own key server executes this.
func TestForwardedACL(t *testing.T) {
	between(t, func(t *testing.T, a, b *site) {
		owner := b.User(t, "owner", keyserver.RoleEncryptor)
		deputy := a.User(t, "deputy", keyserver.RoleEncryptor)
		third := a.User(t, "third", keyserver.RoleExchanger)
		local := b.User(t, "local", keyserver.RoleExchanger)
		ttag := owner.Mint(t, nil)
		a.Expose(t, deputy.ID, b.Site)
		get := rig.Object{"ttag": ttag}
		change := func(of rig.User, rights ...string) rig.Object {
			return rig.Object{"ttag": ttag, "systemId": of.Site.System, "principalId": of.Decimal, "rights": rights}
		}

		a.Refused(t, deputy.Session, "POST", "/api/keys/acl/get", get, http.StatusForbidden, "ACL_DENIED")
		a.Refused(t, deputy.Session, "POST", "/api/keys/acl/grant", change(third, "READ"), http.StatusForbidden, "ACL_DENIED")
		owner.Grant(t, ttag, deputy, "READ")
		read := a.OK(t, deputy.Session, "POST", "/api/keys/acl/get", get)
		if own := b.OK(t, owner.Session, "POST", "/api/keys/acl/get", get); string(own.Raw) != string(read.Raw) {
			t.Errorf("the list as the owner reads it:\n%s\nas it is forwarded:\n%s", own.Raw, read.Raw)
		}
		refusal := a.Refused(t, deputy.Session, "POST", "/api/keys/acl/grant", change(third, "READ"), http.StatusForbidden, "ACL_DENIED")
		if got := rig.FormatRows(b.Rows(t, refusal.RequestID)); got != `["readACL allowed" "amendACL refused aclDenied"]` {
			t.Errorf("where the key is: %s", got)
		}

		owner.Grant(t, ttag, deputy, "OWNER")
		granted := a.OK(t, deputy.Session, "POST", "/api/keys/acl/grant", rig.Object{
			"ttag": ttag, "systemId": a.System, "principalId": third.Decimal, "rights": []string{"WRITE"}, "maxUsage": 3, "endTime": "AAAB//////8=",
		})
		got := entry(granted, third)
		if granted.Body["verified"] != true || !right(got, "WRITE") || !right(got, "READ") || got["maxUsage"] != 3.0 || got["endTime"] != "AAAB//////8=" {
			t.Errorf("granted: %s", granted.Raw)
		}
		for _, s := range []*site{a, b} {
			if got := rig.FormatRows(s.Rows(t, granted.RequestID)); got != `["readACL allowed" "amendACL allowed" "readACL allowed"]` {
				t.Errorf("at %d: %s", s.System, got)
			}
		}
		amended := a.OK(t, deputy.Session, "POST", "/api/keys/acl/update", change(third, "READ"))
		if got := entry(amended, third); amended.Body["verified"] != true || right(got, "WRITE") {
			t.Errorf("amended: %s", amended.Raw)
		}
		if got := a.OK(t, deputy.Session, "POST", "/api/keys/acl/grant", change(local, "READ")); entry(got, local) == nil {
			t.Errorf("granted to a principal of the key's own key server: %s", got.Raw)
		}
		nobody := rig.User{Site: b.Site, Decimal: "123456789"}
		a.Refused(t, deputy.Session, "POST", "/api/keys/acl/grant", change(nobody, "READ"), http.StatusNotFound, "NOT_FOUND")
		revoked := a.OK(t, deputy.Session, "POST", "/api/keys/acl/revoke", rig.Object{"ttag": ttag, "systemId": a.System, "principalId": third.Decimal})
		if revoked.Body["verified"] != true || entry(revoked, third) != nil {
			t.Errorf("revoked: %s", revoked.Raw)
		}
		a.Refused(t, deputy.Session, "POST", "/api/keys/acl/revoke", rig.Object{"ttag": ttag, "systemId": a.System, "principalId": third.Decimal}, http.StatusNotFound, "ACL_NOT_FOUND")
		a.Refused(t, deputy.Session, "POST", "/api/keys/acl/get", rig.Object{"ttag": linkOf(t, b, "0000000000001234")}, http.StatusNotFound, "ACL_NOT_FOUND")
		a.Refused(t, deputy.Session, "POST", "/api/keys/authorize", rig.Object{"ttag": linkOf(t, b, "0000000000001234")}, http.StatusNotFound, "KEY_NOT_FOUND")
		stranger := &site{Site: &rig.Site{System: 77}}
		a.Refused(t, deputy.Session, "POST", "/api/keys/authorize", rig.Object{"ttag": linkOf(t, stranger, "0000000000001234")}, http.StatusNotFound, "KEY_NOT_FOUND")
		a.Refused(t, deputy.Session, "POST", "/api/keys/acl/get", rig.Object{"ttag": linkOf(t, stranger, "0000000000001234")}, http.StatusNotFound, "ACL_NOT_FOUND")
	})
}

// linkOf returns the hidden link of a key id.
func linkOf(t testing.TB, s *site, id string) string {
	t.Helper()
	key, err := values.ParseHexID(id)
	if err != nil {
		t.Fatal(err)
	}
	return values.NewHiddenLink(keyserver.SystemID(s.System), key).Base64()
}

// A usage quota counts each use by a peer exactly once, like all other uses.
func TestForwardedUsesCount(t *testing.T) {
	between(t, func(t *testing.T, a, b *site) {
		owner := b.User(t, "owner", keyserver.RoleEncryptor)
		caller := a.User(t, "caller", keyserver.RoleExchanger)
		a.Expose(t, caller.ID, b.Site)
		ttag := owner.Mint(t, nil)
		b.OK(t, owner.Session, "POST", "/api/keys/acl/grant", rig.Object{
			"ttag": ttag, "systemId": a.System, "principalId": caller.Decimal, "rights": []string{"READ"}, "maxUsage": 3,
		})
		a.OK(t, caller.Session, "POST", "/api/keys/authorize", rig.Object{"ttag": ttag})
		a.OK(t, caller.Session, "POST", "/api/crypto/hmac", hmacOf(ttag, []byte("short")))
		a.OK(t, caller.Session, "POST", "/api/crypto/hmac", hmacOf(ttag, make([]byte, 300_000)))
		a.Refused(t, caller.Session, "POST", "/api/keys/authorize", rig.Object{"ttag": ttag}, http.StatusForbidden, "ACL_DENIED")
	})
}

// A group's entry on a peer's key applies to its members, if the group or the member is exposed to the peer.
func TestForwardedGroups(t *testing.T) {
	between(t, func(t *testing.T, a, b *site) {
		owner := b.User(t, "owner", keyserver.RoleEncryptor)
		member := a.User(t, "member", keyserver.RoleExchanger)
		made := a.OK(t, a.AsAdmin(t), "POST", "/api/principals/groups", rig.Object{"name": "readers"})
		p, _ := made.Body["principal"].(rig.Object)
		gid, _ := p["id"].(string)
		decimal, _ := p["principalId"].(string)
		group := rig.User{Site: a.Site, ID: gid, Decimal: decimal}
		ttag := owner.Mint(t, nil)
		owner.Grant(t, ttag, group, "READ")
		ask := rig.Object{"ttag": ttag}
		membership := "/api/principals/groups/" + gid + "/members/" + member.ID

		a.Expose(t, gid, b.Site)
		a.Refused(t, member.Session, "POST", "/api/keys/authorize", ask, http.StatusForbidden, "ACCESS_DENIED") // no member yet
		a.OK(t, a.AsAdmin(t), "PUT", membership, nil)
		a.OK(t, member.Session, "POST", "/api/keys/authorize", ask)

		// The principal trust of the member takes precedence over that of the group.
		row := a.TrustPrincipal(t, member.ID, b.Site, "restrict")
		a.Refused(t, member.Session, "POST", "/api/keys/authorize", ask, http.StatusForbidden, "ACCESS_DENIED")
		a.OK(t, a.AsAdmin(t), "DELETE", "/api/principal-trusts/"+row, nil)
		a.OK(t, member.Session, "POST", "/api/keys/authorize", ask)

		a.OK(t, a.AsAdmin(t), "DELETE", membership, nil)
		a.Refused(t, member.Session, "POST", "/api/keys/authorize", ask, http.StatusForbidden, "ACCESS_DENIED")
	})
}
