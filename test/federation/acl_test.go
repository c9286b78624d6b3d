package federation

import (
	"net/http"
	"slices"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// entry is somebody's entry in an answer of the ACL routes.
func entry(a answer, of user) object {
	acl, _ := a.body["acl"].(object)
	entries, _ := acl["entries"].([]any)
	for _, e := range entries {
		if o, _ := e.(object); o["principalId"] == of.decimal && o["systemId"] == float64(of.at.system) {
			return o
		}
	}
	return nil
}

func right(o object, name string) bool {
	names, _ := o["rightNames"].([]any)
	return slices.Contains(names, any(name))
}

// The list of a foreign key is read, granted, amended and revoked where the
// key is, by an owner who is somebody's principal elsewhere.
func TestForwardedACL(t *testing.T) {
	between(t, func(t *testing.T, a, b *site) {
		owner := b.user(t, "owner", keyserver.RoleEncryptor)
		deputy := a.user(t, "deputy", keyserver.RoleEncryptor)
		third := a.user(t, "third", keyserver.RoleExchanger)
		local := b.user(t, "local", keyserver.RoleExchanger)
		ttag := owner.mint(t, nil)
		a.expose(t, deputy.id, b)
		get := object{"ttag": ttag}
		change := func(of user, rights ...string) object {
			return object{"ttag": ttag, "systemId": of.at.system, "principalId": of.decimal, "rights": rights}
		}

		a.refused(t, deputy.session, "POST", "/api/keys/acl/get", get, http.StatusForbidden, "ACL_DENIED")
		a.refused(t, deputy.session, "POST", "/api/keys/acl/grant", change(third, "READ"), http.StatusForbidden, "ACL_DENIED")
		owner.grant(t, ttag, deputy, "READ")
		read := a.ok(t, deputy.session, "POST", "/api/keys/acl/get", get)
		if own := b.ok(t, owner.session, "POST", "/api/keys/acl/get", get); string(own.raw) != string(read.raw) {
			t.Errorf("the list as the owner reads it:\n%s\nas it is forwarded:\n%s", own.raw, read.raw)
		}
		refusal := a.refused(t, deputy.session, "POST", "/api/keys/acl/grant", change(third, "READ"), http.StatusForbidden, "ACL_DENIED")
		if got := brief(b.rows(t, refusal.requestID)); got != "[readACL allowed  amendACL refused aclDenied]" {
			t.Errorf("where the key is: %s", got)
		}

		owner.grant(t, ttag, deputy, "OWNER")
		granted := a.ok(t, deputy.session, "POST", "/api/keys/acl/grant", object{
			"ttag": ttag, "systemId": a.system, "principalId": third.decimal, "rights": []string{"WRITE"}, "maxUsage": 3, "endTime": "AAAB//////8=",
		})
		got := entry(granted, third)
		if granted.body["verified"] != true || !right(got, "WRITE") || !right(got, "READ") || got["maxUsage"] != 3.0 || got["endTime"] != "AAAB//////8=" {
			t.Errorf("granted: %s", granted.raw)
		}
		for _, s := range []*site{a, b} {
			if got := brief(s.rows(t, granted.requestID)); got != "[readACL allowed  amendACL allowed  readACL allowed ]" {
				t.Errorf("at %d: %s", s.system, got)
			}
		}
		amended := a.ok(t, deputy.session, "POST", "/api/keys/acl/update", change(third, "READ"))
		if got := entry(amended, third); amended.body["verified"] != true || right(got, "WRITE") {
			t.Errorf("amended: %s", amended.raw)
		}
		if got := a.ok(t, deputy.session, "POST", "/api/keys/acl/grant", change(local, "READ")); entry(got, local) == nil {
			t.Errorf("granted to a principal of the key's own key server: %s", got.raw)
		}
		nobody := user{at: b, decimal: "123456789"}
		a.refused(t, deputy.session, "POST", "/api/keys/acl/grant", change(nobody, "READ"), http.StatusNotFound, "NOT_FOUND")
		revoked := a.ok(t, deputy.session, "POST", "/api/keys/acl/revoke", object{"ttag": ttag, "systemId": a.system, "principalId": third.decimal})
		if revoked.body["verified"] != true || entry(revoked, third) != nil {
			t.Errorf("revoked: %s", revoked.raw)
		}
		a.refused(t, deputy.session, "POST", "/api/keys/acl/revoke", object{"ttag": ttag, "systemId": a.system, "principalId": third.decimal}, http.StatusNotFound, "ACL_NOT_FOUND")
		a.refused(t, deputy.session, "POST", "/api/keys/acl/get", object{"ttag": linkOf(t, b, "0000000000001234")}, http.StatusNotFound, "ACL_NOT_FOUND")
		a.refused(t, deputy.session, "POST", "/api/keys/authorize", object{"ttag": linkOf(t, b, "0000000000001234")}, http.StatusNotFound, "KEY_NOT_FOUND")
		stranger := &site{system: 77}
		a.refused(t, deputy.session, "POST", "/api/keys/authorize", object{"ttag": linkOf(t, stranger, "0000000000001234")}, http.StatusNotFound, "KEY_NOT_FOUND")
		a.refused(t, deputy.session, "POST", "/api/keys/acl/get", object{"ttag": linkOf(t, stranger, "0000000000001234")}, http.StatusNotFound, "ACL_NOT_FOUND")
	})
}

// linkOf spells the hidden link of a key id.
func linkOf(t testing.TB, s *site, id string) string {
	t.Helper()
	key, err := keyserver.ParseHexID(id)
	if err != nil {
		t.Fatal(err)
	}
	return keyserver.NewHiddenLink(keyserver.SystemID(s.system), key).Base64()
}

// A usage limit counts what peers do as it counts everything, exactly.
func TestForwardedUsesCount(t *testing.T) {
	between(t, func(t *testing.T, a, b *site) {
		owner := b.user(t, "owner", keyserver.RoleEncryptor)
		caller := a.user(t, "caller", keyserver.RoleExchanger)
		a.expose(t, caller.id, b)
		ttag := owner.mint(t, nil)
		b.ok(t, owner.session, "POST", "/api/keys/acl/grant", object{
			"ttag": ttag, "systemId": a.system, "principalId": caller.decimal, "rights": []string{"READ"}, "maxUsage": 3,
		})
		a.ok(t, caller.session, "POST", "/api/keys/authorize", object{"ttag": ttag})
		a.ok(t, caller.session, "POST", "/api/crypto/hmac", hmacOf(ttag, []byte("short")))
		a.ok(t, caller.session, "POST", "/api/crypto/hmac", hmacOf(ttag, make([]byte, 300_000)))
		a.refused(t, caller.session, "POST", "/api/keys/authorize", object{"ttag": ttag}, http.StatusForbidden, "ACL_DENIED")
	})
}

// A group's entry counts for its members at home, as long as the group is
// theirs and the group or they are exposed.
func TestForwardedGroups(t *testing.T) {
	between(t, func(t *testing.T, a, b *site) {
		owner := b.user(t, "owner", keyserver.RoleEncryptor)
		member := a.user(t, "member", keyserver.RoleExchanger)
		made := a.ok(t, a.admin(t), "POST", "/api/principals/groups", object{"name": "readers"})
		p, _ := made.body["principal"].(object)
		gid, _ := p["id"].(string)
		decimal, _ := p["principalId"].(string)
		group := user{at: a, id: gid, decimal: decimal}
		ttag := owner.mint(t, nil)
		owner.grant(t, ttag, group, "READ")
		ask := object{"ttag": ttag}
		membership := "/api/principals/groups/" + gid + "/members/" + member.id

		a.expose(t, gid, b)
		a.refused(t, member.session, "POST", "/api/keys/authorize", ask, http.StatusForbidden, "ACCESS_DENIED") // no member yet
		a.ok(t, a.admin(t), "PUT", membership, nil)
		a.ok(t, member.session, "POST", "/api/keys/authorize", ask)

		// Its own row comes before the group's.
		row := a.trust(t, member.id, b, "restrict")
		a.refused(t, member.session, "POST", "/api/keys/authorize", ask, http.StatusForbidden, "ACCESS_DENIED")
		a.ok(t, a.admin(t), "DELETE", "/api/principal-trusts/"+row, nil)
		a.ok(t, member.session, "POST", "/api/keys/authorize", ask)

		a.ok(t, a.admin(t), "DELETE", membership, nil)
		a.refused(t, member.session, "POST", "/api/keys/authorize", ask, http.StatusForbidden, "ACCESS_DENIED")
	})
}
