package contract

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestNobodyGivesWhatHeDoesNotHold checks contract 4.9: a manager of roles and principals cannot grant operations that
// it does not have. The refusal names these operations.
func TestNobodyGivesWhatHeDoesNotHold(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		managing := []string{}
		for _, op := range []keyserver.Operation{
			keyserver.OpListRoles, keyserver.OpCreateRole, keyserver.OpUpdateRole, keyserver.OpReadPrincipal,
			keyserver.OpCreatePrincipal, keyserver.OpUpdatePrincipalRoles, keyserver.OpChangeGroupMembers,
		} {
			managing = append(managing, op.ID.Hex())
		}
		role := s.OK(t, s.AsAdmin(t), "POST", "/api/roles", rig.Object{"name": s.name("clerk"), "operations": managing}).Text(t, "id")
		id, err := values.ParseHexID(role)
		if err != nil {
			t.Fatal(err)
		}
		clerk := s.User(t, "clerk", id).Session
		group, person := s.group(t, "auditors", keyserver.RoleAuditor), s.principal(t, "person")
		export := []string{keyserver.OpExportKey.ID.Hex()}
		for name, c := range map[string]struct {
			method, path string
			body         any
			first        string
		}{
			"CreateRole": {"POST", "/api/roles", rig.Object{"name": "more", "operations": append(export, managing...)}, "Export Key"},
			"UpdateRole": {"PUT", "/api/roles/" + role, rig.Object{"operations": append(export, managing...)}, "Export Key"},
			"Create":     {"POST", "/api/principals/password", rig.Object{"name": "friend", "password": somePassword, "roleIds": hexes(keyserver.RoleAdministrator)}, "List Operations"},
			"Group":      {"POST", "/api/principals/groups", rig.Object{"name": "friends", "roleIds": hexes(keyserver.RoleAdministrator)}, "List Operations"},
			"Roles":      {"PUT", "/api/principals/" + person + "/roles", rig.Object{"roleIds": hexes(keyserver.RoleAdministrator)}, "List Operations"},
			"Member":     {"PUT", "/api/principals/groups/" + group + "/members/" + person, nil, "List Operations"},
		} {
			t.Run(name, func(t *testing.T) {
				a := s.Refused(t, clerk, c.method, c.path, c.body, http.StatusForbidden, "ESCALATION")
				if !strings.Contains(a.Text(t, "detail"), c.first) {
					t.Errorf("the first operation is %s: %s", c.first, a.Raw)
				}
				if rows := rig.FormatRows(s.Rows(t, a.RequestID)); !strings.Contains(rows, "refused escalation") {
					t.Errorf("the trail has %s", rows)
				}
			})
		}
		s.OK(t, clerk, "PUT", "/api/principals/"+person+"/roles", rig.Object{"roleIds": []string{role}})
	})
}

// TestDutiesStayApart checks contract 4.10 and 4.7: a split deployment starts with one principal for each of
// two duties. Neither can create the other, and together they cannot create one principal with both duties.
func TestDutiesStayApart(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		admin, officer := s.AsAdmin(t), s.As(t, s.Officer.Name, s.Officer.Password)
		both := hexes(keyserver.RoleAdministrator, keyserver.RoleSecurityOfficer)
		s.Refused(t, admin, "POST", "/api/principals/password", rig.Object{"name": "every role", "password": somePassword, "roleIds": both}, http.StatusForbidden, "ESCALATION")
		second := s.principal(t, "second", keyserver.RoleAdministrator)
		a := s.Refused(t, officer, "PUT", "/api/principals/"+second+"/roles", rig.Object{"roleIds": both}, http.StatusConflict, "DUTIES_CONFLICT")
		for _, duty := range []string{"(administration)", "(trust)"} {
			if !strings.Contains(a.Text(t, "detail"), duty) {
				t.Errorf("no operation of %s: %s", duty, a.Raw)
			}
		}
		s.Refused(t, officer, "PUT", "/api/principals/"+s.self(t, admin)+"/roles", rig.Object{"roleIds": []string{}}, http.StatusForbidden, "ESCALATION")
		s.OK(t, s.with(t, keyserver.RoleAuditor), "GET", "/api/audit", nil)
	}, split)
}
