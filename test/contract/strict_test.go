package contract

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// A filter by the id zero is refused, and does not select everything (contract 3.1).
func TestFiltersByZero(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		for _, path := range []string{
			"/api/sessions?principalId=0000000000000000",
			"/api/audit?principalId=0",
			"/api/audit?session=0000000000000000",
			"/api/audit?until=0001-01-01T00:00:00Z",
			"/api/approvals?asker=0000000000000000",
			"/api/principal-trusts?principalId=0000000000000000",
			"/api/principal-trusts?trustedServerSystemId=0",
			"/api/templated-directories?aclTemplateId=0000000000000000",
		} {
			s.Refused(t, admin, "GET", path, nil, http.StatusBadRequest, "BAD_REQUEST")
		}
		s.OK(t, admin, "GET", "/api/sessions?after=0000000000000000", nil)
	})
}

// Each question of several that cannot be read has an error of its own (contract 18.20).
func TestEvaluationsThatCannotBeRead(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		auditor := s.with(t, keyserver.RoleAuditor)
		good := join(accessTo("listRoles", s.self(t, auditor)), rig.Object{"resource": rig.Object{"type": "keyserver", "id": "self"}})
		bad := []struct {
			item any
			says string
		}{
			{rig.Object{"action": rig.Object{"name": "can_read"}}, "action.name"},
			{rig.Object{"action": rig.Object{}}, "action.name"},
			{rig.Object{"action": "listRoles"}, "action"},
			{rig.Object{"subject": rig.Object{"type": "user", "id": noID}}, "subject.type"},
			{rig.Object{"subject": rig.Object{"type": "principal", "id": "alice"}}, "subject.id"},
			{rig.Object{"resource": rig.Object{"type": "todo", "id": "self"}}, "resource.type"},
			{rig.Object{"resource": rig.Object{"type": "key", "id": "AAAAAR=="}}, "resource.id"},
			{rig.Object{"resource": nil}, "resource"},
			{rig.Object{"context": 1}, "context"},
			{rig.Object{"surprise": 1}, "surprise"},
			{"listRoles", "must be an object"},
			{[]int{}, "must be an object"},
			{nil, "must not be null"},
			{7, "must be an object"},
		}
		items := []any{good}
		for _, b := range bad {
			items = append(items, b.item, rig.Object{})
		}
		answers := s.OK(t, auditor, "POST", evaluationsPath, join(good, rig.Object{"evaluations": items})).List(t, "evaluations")
		if len(answers) != len(items) {
			t.Fatalf("%d answers to %d questions", len(answers), len(items))
		}
		for i, a := range answers {
			because, _ := a["context"].(map[string]any)
			e, _ := because["error"].(map[string]any)
			if i%2 == 0 {
				if a["decision"] != true || e != nil {
					t.Errorf("a good question: %v", a)
				}
				continue
			}
			b := bad[i/2]
			message, _ := e["message"].(string)
			if a["decision"] != false || because["code"] != "BAD_REQUEST" || e["status"] != 400.0 || !strings.Contains(message, b.says) {
				t.Errorf("%v: got %v, want an error about %s", b.item, a, b.says)
			}
		}
	})
}

// What a scoped credential is not good for is refused with that, whether or not a session
// needs a role for it (contract 4.5, 19.9).
func TestScopedCredentialIsToldWhy(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		user := s.with(t, keyserver.RoleExchanger)
		id := s.self(t, user)
		credential := s.OK(t, user, "POST", sessions, scoped("AAAAAQ==")).Text(t, "sessionId")
		digest := rig.Object{"digest": strings.Repeat("0", 64)}
		for _, of := range []struct {
			method, path string
			body         any
		}{
			{"POST", "/api/approvals/" + noID + "/approve", digest},
			{"POST", "/api/approvals/" + noID + "/reject", digest},
			{"POST", "/api/approvals/" + noID + "/withdraw", nil},
			{"POST", "/api/approvals/" + noID + "/execute", nil},
			{"GET", "/api/approvals/" + noID, nil},
			{"GET", "/api/approvals?asker=" + id, nil},
			{"POST", "/api/approvals", rig.Object{"method": "POST", "path": "/api/keys/export", "body": rig.Object{"hiddenLink": "AAAAAQ=="}, "reason": "for a test"}},
			{"PUT", passwordOf(id), rig.Object{"password": "another password", "current": rig.Password}},
			{"PUT", passwordOf(id), rig.Object{"password": "another password"}},
			{"GET", "/api/sessions?principalId=" + id, nil},
			{"DELETE", "/api/principals/" + id + "/sessions", nil},
			{"GET", "/api/roles", nil},
			{"POST", sessions, scoped("AAAAAQ==")},
		} {
			a := s.Refused(t, credential, of.method, of.path, of.body, http.StatusForbidden, "OBJECT_NOT_IN_CREDENTIAL_SCOPE")
			if trail := rig.Trail(s.Rows(t, a.RequestID)); !strings.Contains(trail, "refused notInScope") {
				t.Errorf("%s %s: the trail has %s", of.method, of.path, trail)
			}
		}
	})
}
