package contract

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

const (
	ownersPath  = "/api/owners"
	firstOwner  = "cluster-1/team/Role/shop"
	secondOwner = "cluster-2/team/Role/shop"
)

func ownerOf(kind, id string) string { return ownersPath + "/" + kind + "/" + id }

// hexOf converts a certificateId into the encoding of the change feed.
func hexOf(t testing.TB, certificateID any) string {
	t.Helper()
	text, _ := certificateID.(string)
	id, err := values.ParseBase64ID(text)
	rig.Must(t, err)
	return id.Hex()
}

// TestOwners checks contract 18.14 to 18.17: owner marks name the manager of an object.
func TestOwners(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, id := s.AsAdmin(t), s.role(t, "shop")
		path := ownerOf("role", id)
		owner := func(name string) rig.Object { return rig.Object{"owner": name} }
		put := func(change rig.Object) map[string]refusal {
			return map[string]refusal{"Put": {path, change, 400, "BAD_REQUEST", "owner"}}
		}
		for _, name := range []any{"", strings.Repeat("ü", 257), "a\nb", "a\u200bb", "\u202eabc", 7, nil} {
			s.refusals(t, admin, "PUT", put(rig.Object{"owner": name}))
		}
		s.refusals(t, admin, "PUT", map[string]refusal{
			"Kind":      {ownerOf("session", id), owner(firstOwner), 400, "BAD_REQUEST", "kind"},
			"KindCase":  {ownerOf("Role", id), owner(firstOwner), 400, "BAD_REQUEST", "kind"},
			"ID":        {ownerOf("role", "shop"), owner(firstOwner), 400, "BAD_REQUEST", "id"},
			"DecimalID": {ownerOf("role", "12345"), owner(firstOwner), 400, "BAD_REQUEST", "id"},
			"Nothing":   {path, rig.Object{}, 400, "BAD_REQUEST", "owner"},
			"Expect":    {path, rig.Object{"owner": firstOwner, "expect": ""}, 400, "BAD_REQUEST", "expect"},
			"Unseen":    {path, rig.Object{"owner": firstOwner, "expect": "a\u200bb"}, 400, "BAD_REQUEST", "expect"},
			"NoObject":  {ownerOf("role", noID), owner(firstOwner), 404, "NOT_FOUND", noID},
			"OtherKind": {ownerOf("aclTemplate", id), owner(firstOwner), 404, "NOT_FOUND", id},
			"Zero":      {ownerOf("key", "0000000000000000"), owner(firstOwner), 404, "NOT_FOUND", ""},
			"NotHeld":   {path, rig.Object{"owner": firstOwner, "expect": secondOwner}, 409, "OWNED", "no owner mark"},
		})
		s.refusals(t, admin, "GET", map[string]refusal{
			"NoMark": {path, nil, 404, "NOT_FOUND", id}, "NoObject": {ownerOf("role", noID), nil, 404, "NOT_FOUND", noID},
			"NoKind": {ownersPath, nil, 400, "BAD_REQUEST", "kind"}, "Kind": {ownersPath + "?kind=dataKey", nil, 400, "BAD_REQUEST", "kind"},
			"Limit": {ownersPath + "?kind=role&limit=1001", nil, 400, "BAD_REQUEST", "limit"}, "After": {ownersPath + "?kind=role&after=shop", nil, 400, "BAD_REQUEST", "after"},
		})
		s.refusals(t, admin, "DELETE", map[string]refusal{
			"NoExpect": {path, nil, 400, "BAD_REQUEST", "expect"}, "NoMark": {path + "?expect=" + firstOwner, nil, 404, "NOT_FOUND", id},
		})
		s.Refused(t, s.with(t, keyserver.RoleAuditor), "PUT", path, owner(firstOwner), http.StatusForbidden, "ACCESS_DENIED")
		s.Refused(t, s.with(t, keyserver.RoleEncryptor), "GET", path, nil, http.StatusForbidden, "ACCESS_DENIED")

		before, cursor := time.Now().Add(-time.Second), s.cursor(t, admin)
		a := s.OK(t, admin, "PUT", path, owner(firstOwner))
		since, err := time.Parse(time.RFC3339Nano, a.Text(t, "since"))
		if a.Body["saved"] != true || a.Text(t, "owner") != firstOwner || a.Text(t, "kind") != "role" || a.Text(t, "id") != id || err != nil || since.Before(before) {
			t.Errorf("marked: %s", a.Raw)
		}
		// Repeated: the caller already is the owner, regardless of expect.
		for _, change := range []rig.Object{owner(firstOwner), {"owner": firstOwner, "expect": firstOwner}, {"owner": firstOwner, "expect": secondOwner}} {
			if again := s.OK(t, admin, "PUT", path, change); again.Text(t, "since") != a.Text(t, "since") {
				t.Errorf("%v: it is another mark: %s", change, again.Raw)
			}
		}
		for _, change := range []rig.Object{owner(secondOwner), {"owner": secondOwner, "expect": "nobody"}, {"owner": secondOwner, "expect": secondOwner[1:]}} {
			held(t, s.Refused(t, admin, "PUT", path, change, http.StatusConflict, "OWNED"), firstOwner)
		}
		held(t, s.Refused(t, admin, "DELETE", path+"?expect="+secondOwner, nil, http.StatusConflict, "OWNED"), firstOwner)
		if got := s.OK(t, s.with(t, keyserver.RoleAuditor), "GET", path, nil); got.Text(t, "owner") != firstOwner {
			t.Errorf("after refusals: %s", got.Raw)
		}

		s.OK(t, admin, "PUT", path, rig.Object{"owner": secondOwner, "expect": firstOwner})
		a = s.OK(t, admin, "DELETE", path+"?expect="+secondOwner, nil)
		if a.Body["gone"] != true || a.Text(t, "owner") != secondOwner {
			t.Errorf("released: %s", a.Raw)
		}
		s.Refused(t, admin, "GET", path, nil, http.StatusNotFound, "NOT_FOUND")
		s.OK(t, admin, "PUT", path, owner(strings.Repeat("ü", 256)))
		if got, want := s.changedSince(t, admin, cursor, id), []string{"roleOwner created", "roleOwner created", "roleOwner deleted", "roleOwner updated"}; !slices.Equal(got, want) {
			t.Errorf("the feed has %v, want %v", got, want)
		}
		var trail []string
		for _, row := range s.OK(t, admin, "GET", s.trail("operation=setOwner&limit=1000"), nil).List(t, "entries") {
			if row["object"] == "role "+id {
				trail = append(trail, fmt.Sprintf("%v %v", row["outcome"], row["reason"]))
			}
		}
		for _, want := range []string{"failed owned", "failed objectNotFound", "refused roleDenied", "allowed "} {
			if !slices.Contains(trail, want) {
				t.Errorf("the trail does not say %q: %q", want, trail)
			}
		}
	})
}

// TestMadeWithAnOwner checks contract 18.16: an object that is created with an owner has the owner mark immediately.
func TestMadeWithAnOwner(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		shop := s.role(t, "shop")
		makes, err := values.ParseHexID(s.OK(t, admin, "POST", "/api/roles", rig.Object{
			"name": s.name("role maker"), "operations": hexes(keyserver.OpListRoles.ID, keyserver.OpCreateRole.ID, keyserver.OpReadOwners.ID, keyserver.OpHMAC.ID),
		}).Text(t, "id"))
		rig.Must(t, err)
		maker := s.with(t, makes)
		ask := func(session, owner, method, path string, body rig.Object) rig.Answer {
			t.Helper()
			return s.Do(t, rig.Request{Session: session, Owner: owner, Method: method, Path: path, Body: body})
		}
		first, second := s.name(firstOwner), s.name(secondOwner)
		made := rig.Object{"name": s.name("made"), "operations": hexes(keyserver.OpHMAC.ID)}
		for name, a := range map[string]struct {
			rig.Answer
			status     int
			code, says string
		}{
			"MakesNothing": {ask(admin, first, "PUT", "/api/roles/"+shop, rig.Object{"name": "store"}), 400, "BAD_REQUEST", "X-Keyserver-Owner"},
			"Reads":        {ask(admin, first, "GET", "/api/roles", nil), 400, "BAD_REQUEST", "X-Keyserver-Owner"},
			"TooLong":      {ask(admin, strings.Repeat("o", 257), "POST", "/api/roles", made), 400, "BAD_REQUEST", "256"},
			"Unseen":       {ask(admin, "a\u200bb", "POST", "/api/roles", made), 400, "BAD_REQUEST", "printable"},
			"MayNotMark":   {ask(maker, first, "POST", "/api/roles", made), 403, "ACCESS_DENIED", "Set Owner"},
			"ThereAlready": {ask(admin, first, "POST", "/api/roles", rig.Object{"name": s.name("shop"), "operations": hexes()}), 409, "ALREADY_EXISTS", ""},
		} {
			if a.Status != a.status || a.Body["code"] != a.code || !strings.Contains(a.Text(t, "detail"), a.says) {
				t.Errorf("%s: %s", name, a.Raw)
			}
		}
		if a := s.OK(t, admin, "GET", ownersPath+"?kind=role&limit=1000", nil); strings.Contains(string(a.Raw), first) {
			t.Errorf("after refusals: %s", a.Raw)
		}

		cursor := s.cursor(t, admin)
		id := ask(admin, first, "POST", "/api/roles", made).Text(t, "id") // fails if a refused request has created the role
		if a := s.OK(t, maker, "GET", ownerOf("role", id), nil); a.Text(t, "owner") != first {
			t.Errorf("made: %s", a.Raw)
		}
		s.OK(t, admin, "DELETE", "/api/roles/"+id, nil)
		s.Refused(t, admin, "GET", ownerOf("role", id), nil, http.StatusNotFound, "NOT_FOUND")
		if got, want := s.changedSince(t, admin, cursor, id), []string{"role created", "role deleted", "roleOwner created", "roleOwner deleted"}; !slices.Equal(got, want) {
			t.Errorf("the feed has %v, want %v", got, want)
		}

		// Enrolment creates principals. An existing principal gets no mark.
		enrol := rig.Object{"certificates": []string{b64(s.issue(t, "agent", newKey(t)))}}
		agent := ask(admin, first, "POST", "/api/certificates/enroll", enrol).List(t, "principals")[0]["id"].(string)
		if a := s.OK(t, admin, "GET", ownerOf("principal", agent), nil); a.Text(t, "owner") != first {
			t.Errorf("enrolled: %s", a.Raw)
		}
		s.OK(t, admin, "DELETE", ownerOf("principal", agent)+"?expect="+first, nil)
		ask(admin, second, "POST", "/api/certificates/enroll", enrol)
		s.Refused(t, admin, "GET", ownerOf("principal", agent), nil, http.StatusNotFound, "NOT_FOUND")
	})
}

// held checks that a refusal names the owner.
func held(t *testing.T, a rig.Answer, owner string) {
	t.Helper()
	if a.Text(t, "owner") != owner || !strings.Contains(a.Text(t, "detail"), owner) || a.Body["since"] == nil {
		t.Errorf("it does not say that %s holds it: %s", owner, a.Raw)
	}
}

// TestListOwners checks contract 18.14: pages sorted by id, filtered by kind.
func TestListOwners(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		var want []string
		for i := range 5 {
			id := s.role(t, fmt.Sprint("role ", i))
			s.OK(t, admin, "PUT", ownerOf("role", id), rig.Object{"owner": "owner of " + id})
			want = append(want, id)
		}
		slices.Sort(want)
		s.role(t, "of nobody")
		s.OK(t, admin, "PUT", ownerOf("aclTemplate", s.template(t, admin, "template")), rig.Object{"owner": s.name(firstOwner)})
		for _, limit := range []string{"", "&limit=1", "&limit=2", "&limit=5", "&limit=1000"} {
			var got []string
			for after := ""; ; {
				a := s.OK(t, admin, "GET", ownersPath+"?kind=role"+limit+after, nil)
				for _, mark := range a.List(t, "owners") {
					id, _ := mark["id"].(string)
					if _, own := slices.BinarySearch(want, id); mark["kind"] != "role" || own && mark["owner"] != "owner of "+id {
						t.Errorf("%v", mark)
					} else if own || mark["owner"] == s.name(firstOwner) {
						got = append(got, id)
					}
				}
				if a.Body["next"] == nil {
					break
				}
				after = "&after=" + a.Text(t, "next")
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q lists %v, want %v", limit, got, want)
			}
		}
	})
}

// TestOwnersRace sends many concurrent requests for one owner mark. They expect no owner or the previous owner. Exactly
// one request succeeds, and the responses to the other requests name the new owner.
func TestOwnersRace(t *testing.T) {
	replicated(t, func(t *testing.T, s, other *subject) {
		admin, id := s.AsAdmin(t), s.role(t, "shop")
		path, expected := ownerOf("role", id), rig.Object{}
		for round := range 5 {
			var all sync.WaitGroup
			answers := make([]rig.Answer, 8)
			for i := range answers {
				at := []*subject{s, other}[i%2]
				all.Go(func() {
					answers[i] = at.Send(t, admin, "PUT", path, join(expected, rig.Object{"owner": fmt.Sprintf("%d/%d", round, i)}))
				})
			}
			all.Wait()
			winner, _ := s.OK(t, admin, "GET", path, nil).Body["owner"].(string)
			won := 0
			for i, a := range answers {
				switch {
				case a.Status == http.StatusOK && winner == fmt.Sprintf("%d/%d", round, i):
					won++
				case a.Status != http.StatusConflict || a.Code() != "OWNED" || a.Text(t, "owner") != winner:
					t.Errorf("round %d: %d was answered %d %s, and %s has it", round, i, a.Status, a.Raw, winner)
				}
			}
			if won != 1 {
				t.Errorf("round %d: %d have got the mark", round, won)
			}
			expected = rig.Object{"expect": winner}
		}
	})
}

// TestOwnersGoWithTheirObjects checks contract 18.16: deleting an object of any kind deletes its owner mark. A peer
// that is registered again with the same system id does not get the mark of the deleted peer.
func TestOwnersGoWithTheirObjects(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		s.registerPeer(t, admin)
		person := s.principal(t, "person")
		template := s.template(t, admin, "template")
		row := s.OK(t, admin, "POST", "/api/principal-trusts", rig.Object{"principalId": person, "trustedServerSystemId": s.peerSystem(), "flag": "expose"}).Text(t, "principalTrust", "id")
		directory := s.OK(t, admin, "POST", "/api/templated-directories", rig.Object{"path": s.path("/a"), "aclTemplateId": template}).Text(t, "id")
		role := s.role(t, "role")
		ca := rig.Object{"certificateId": s.trust(t, newCA(t, s.name("CA")))}
		ends := []struct {
			kind, id, method, path string
			body                   any
		}{
			{"principalTrust", row, "DELETE", "/api/principal-trusts/" + row, nil},
			{"trustedServer", values.IDFromUint64(uint64(s.peerSystem())).Hex(), "DELETE", peerPath(s.peerSystem()), nil},
			{"templatedDirectory", directory, "DELETE", "/api/templated-directories/" + directory, nil},
			{"aclTemplate", template, "DELETE", "/api/acl-templates/" + template, nil},
			{"principal", person, "DELETE", "/api/principals/" + person, nil},
			{"role", role, "DELETE", "/api/roles/" + role, nil},
			{"trustedCA", hexOf(t, ca["certificateId"]), "POST", "/api/trusted-cas/remove", rig.Object{"certificateId": ca["certificateId"]}},
		}
		for _, e := range ends {
			s.OK(t, admin, "PUT", ownerOf(e.kind, e.id), rig.Object{"owner": firstOwner})
		}
		for _, e := range ends {
			s.OK(t, admin, e.method, e.path, e.body)
			s.Refused(t, admin, "GET", ownerOf(e.kind, e.id), nil, http.StatusNotFound, "NOT_FOUND")
			s.Refused(t, admin, "PUT", ownerOf(e.kind, e.id), rig.Object{"owner": firstOwner}, http.StatusNotFound, "NOT_FOUND")
		}
		s.registerPeer(t, admin)
		s.OK(t, admin, "PUT", ownerOf("trustedServer", values.IDFromUint64(uint64(s.peerSystem())).Hex()), rig.Object{"owner": secondOwner})
	})
}

// TestOwnersGrantNothing checks contract 18.17: an owner mark does not restrict access to the object.
func TestOwnersGrantNothing(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, id := s.AsAdmin(t), s.role(t, "shop")
		s.OK(t, admin, "PUT", ownerOf("role", id), rig.Object{"owner": firstOwner})
		s.OK(t, admin, "PUT", "/api/roles/"+id, rig.Object{"name": s.name("renamed")})
		// Scoped credentials and delegated sessions do not permit these operations.
		key := s.OK(t, admin, "POST", "/api/keys", rig.Object{"algorithm": "AES-256"}).Text(t, "ttag")
		scoped := s.OK(t, admin, "POST", sessions, rig.Object{"method": "scoped", "objects": []string{key}, "lifetimeSeconds": 60}).Text(t, "sessionId")
		s.Refused(t, scoped, "GET", ownerOf("role", id), nil, http.StatusForbidden, "OBJECT_NOT_IN_CREDENTIAL_SCOPE")
		s.Refused(t, scoped, "PUT", ownerOf("role", id), rig.Object{"owner": firstOwner}, http.StatusForbidden, "OBJECT_NOT_IN_CREDENTIAL_SCOPE")
		boss := s.principal(t, "boss", keyserver.RoleAdministrator)
		s.flags(t, boss, rig.Object{"delegation": true})
		lent := s.OK(t, s.with(t, keyserver.RoleExchanger), "POST", sessions, delegated(boss)).Text(t, "sessionId")
		s.Refused(t, lent, "GET", ownerOf("role", id), nil, http.StatusForbidden, "ACCESS_DENIED")
		s.Refused(t, lent, "PUT", ownerOf("role", id), rig.Object{"owner": firstOwner}, http.StatusForbidden, "ACCESS_DENIED")
	})
}

// TestOwnersLastAndAreNotForged checks that owner marks survive a restart. The server rejects a mark that was written
// directly into the database, but deletes it with its object.
func TestOwnersLastAndAreNotForged(t *testing.T) {
	intrude(t, opened, func(t *testing.T, s *subject, in intruder) {
		id := s.role(t, "shop")
		path := ownerOf("role", id)
		s.OK(t, s.AsAdmin(t), "PUT", path, rig.Object{"owner": firstOwner})
		s.Stop(t)
		s.Restart(t)
		s.DropSessions()
		if a := s.OK(t, s.AsAdmin(t), "GET", path, nil); a.Text(t, "owner") != firstOwner {
			t.Errorf("after a restart: %s", a.Raw)
		}
		in.run(t, `UPDATE owners SET owner = $1 WHERE id = $2`, secondOwner, bytesOf(t, id))
		for _, c := range []struct {
			method, path string
			body         any
		}{
			{"GET", path, nil}, {"GET", ownersPath + "?kind=role", nil}, {"PUT", path, rig.Object{"owner": firstOwner, "expect": secondOwner}}, {"DELETE", path + "?expect=" + secondOwner, nil},
		} {
			s.Refused(t, s.AsAdmin(t), c.method, c.path, c.body, http.StatusServiceUnavailable, storeTampered)
		}
		s.alarmed(t, "owners role "+id)
		in.doctor(t, 1, "rows: owners role "+id+": it does not agree with its MAC\n")
		s.OK(t, s.AsAdmin(t), "DELETE", "/api/roles/"+id, nil)
		in.doctor(t, 0, "rows: ok")
	})
}

// TestOwnersUnderApproval checks that changing an owner can need an approval. The approval is only valid for the owner
// that the approver saw.
func TestOwnersUnderApproval(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		defer s.keepPolicy(t)()
		admin, id := s.AsAdmin(t), s.role(t, "shop")
		path := ownerOf("role", id)
		s.OK(t, admin, "PUT", path, rig.Object{"owner": firstOwner})
		s.principal(t, "second", keyserver.RoleSecurityOfficer)
		second := rig.Credentials{Name: s.name("second"), Password: somePassword}
		s.OK(t, admin, "PUT", "/api/approvals/policy", rig.Object{"rules": []rig.Object{{"operation": "setOwner", "approvers": 1, "duty": "any"}}})
		change := rig.Object{"owner": secondOwner, "expect": firstOwner}
		s.Refused(t, admin, "PUT", path, change, http.StatusForbidden, "APPROVAL_REQUIRED")
		asked := s.OK(t, admin, "POST", "/api/approvals", rig.Object{"method": "PUT", "path": path, "body": change, "reason": "moved to the other cluster"})
		var about rig.Object
		for _, one := range asked.List(t, "subjects") {
			if one["kind"] == "owner" {
				about = one
			}
		}
		if about["id"] != "role "+id || about["name"] != firstOwner {
			t.Errorf("the approval is about %v: %s", about, asked.Raw)
		}
		a := s.Approved(t, admin, second, "PUT", path, change)
		if a.Status != http.StatusOK || a.Text(t, "owner") != secondOwner {
			t.Errorf("executed: %s", a.Raw)
		}
		// When the first approval was requested, the mark had another owner.
		if err := s.TryToApprove(t, second, asked); !client.IsCode(err, "APPROVAL_STATE") || !strings.Contains(err.Error(), "owner mark of role "+id) {
			t.Errorf("approved: %v", err)
		}
	}, alone)
}
