package contract

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// A filter by the id zero is refused. It does not select all objects (contract 3.1).
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

// TestEvaluationsThatCannotBeRead checks a request with several questions: each invalid question has its own error
// (contract 18.20).
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

// TestScopedCredentialIsToldWhy checks that operations outside a scoped credential are refused for that reason,
// whether or not they need a role (contract 4.5, 19.9).
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
			{"POST", "/api/approvals", rig.Object{
				"method": "PUT", "path": "/api/principals/" + id + "/roles", "body": rig.Object{"roleIds": hexes(keyserver.RoleAuditor)}, "reason": "for a test",
			}},
			{"PUT", passwordOf(id), rig.Object{"password": "another password", "current": rig.Password}},
			{"PUT", passwordOf(id), rig.Object{"password": "another password"}},
			{"GET", "/api/sessions?principalId=" + id, nil},
			{"DELETE", "/api/principals/" + id + "/sessions", nil},
			{"GET", "/api/roles", nil},
			{"POST", sessions, scoped("AAAAAQ==")},
		} {
			a := s.Refused(t, credential, of.method, of.path, of.body, http.StatusForbidden, "OBJECT_NOT_IN_CREDENTIAL_SCOPE")
			if trail := rig.FormatRows(s.Rows(t, a.RequestID)); !strings.Contains(trail, "refused notInScope") {
				t.Errorf("%s %s: the trail has %s", of.method, of.path, trail)
			}
		}
	})
}

// TestAnApproverThinksAgain checks that an approver can withdraw its approval or reject the request until it is
// executed (contract 4.14).
func TestAnApproverThinksAgain(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		to := s.principal(t, "to")
		ask := func() (rig.Answer, string) {
			asked := s.OK(t, admin, "POST", "/api/approvals", rig.Object{
				"method": "PUT", "path": "/api/principals/" + to + "/roles", "reason": "for a test",
				"body": rig.Object{"roleIds": hexes(keyserver.RoleAdministrator)},
			})
			return asked, "/api/approvals/" + asked.Text(t, "approvalId")
		}
		state := func(at, want string) {
			t.Helper()
			if a := s.OK(t, admin, "GET", at, nil); a.Text(t, "state") != want {
				t.Errorf("want %s, got %s", want, a.Raw)
			}
		}
		asked, at := ask()
		s.Approve(t, s.Officer, asked)
		state(at, "approved")
		officer := s.As(t, s.Officer.Name, s.Officer.Password)
		approver := s.Bound(t, s.Officer)
		s.Refused(t, officer, "POST", at+"/withdraw", nil, http.StatusForbidden, "SESSION_NOT_BOUND")
		if a, err := approver.WithdrawApproval(t.Context(), schema.ByID{ID: decisionOn(t, asked).ID}); err != nil || a.State != "pending" {
			t.Errorf("an approver withdraws: %+v, %v", a, err)
		}
		state(at, "pending")
		s.Refused(t, admin, "POST", at+"/execute", nil, http.StatusConflict, "APPROVAL_STATE")
		s.Approve(t, s.Officer, asked)
		s.OK(t, admin, "POST", at+"/execute", nil)
		s.Refused(t, officer, "POST", at+"/withdraw", nil, http.StatusForbidden, "SESSION_NOT_BOUND")

		asked, at = ask()
		s.Approve(t, s.Officer, asked)
		if _, err := approver.Reject(t.Context(), decisionOn(t, asked)); err != nil {
			t.Errorf("an approver rejects: %v", err)
		}
		state(at, "rejected")
	}, split)
}

func decisionOn(t *testing.T, asked rig.Answer) (d schema.ApprovalDecision) {
	t.Helper()
	id, err := schema.ParseHexID(asked.Text(t, "approvalId"))
	if err == nil {
		err = d.Digest.UnmarshalText([]byte(asked.Text(t, "digest")))
	}
	if err != nil {
		t.Fatal(err)
	}
	d.ID = id
	return d
}

// TestOptionalBody checks that a route with only optional members accepts a request without a body (contract
// 1.3).
func TestOptionalBody(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		officer := s.with(t, keyserver.RoleSecurityOfficer)
		s.Refused(t, officer, "POST", "/api/authority/activate", nil, http.StatusConflict, "AUTHORITY_STATE")
	})
}

// TestADelegatedSessionUpdatesNobody checks that a delegated session cannot update any principal (contract 4.8,
// 4.11).
func TestADelegatedSessionUpdatesNobody(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		boss := s.principal(t, "boss", keyserver.RoleAuditor)
		s.flags(t, boss, rig.Object{"delegation": true})
		lent := s.delegate(t, admin, boss)
		for _, id := range []string{s.self(t, admin), boss, s.principal(t, "other")} {
			a := s.Refused(t, lent, "PUT", "/api/principals/"+id+"/flags", rig.Object{"delegation": true}, http.StatusForbidden, "ACCESS_DENIED")
			if trail := rig.FormatRows(s.Rows(t, a.RequestID)); !strings.Contains(trail, "refused notLent") {
				t.Errorf("the trail has %s", trail)
			}
		}
	})
}

// TestEncodedBodies checks that bodies with a Content-Encoding are refused (contract 1.3).
func TestEncodedBodies(t *testing.T) {
	s := one(t)
	a := s.Do(t, rig.Request{Session: s.AsAdmin(t), Method: "POST", Path: "/api/explain", Body: rig.Object{}, Encoding: "gzip"})
	is(t, a, http.StatusUnsupportedMediaType, "UNSUPPORTED_ENCODING")
}
