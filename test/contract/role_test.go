package contract

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

func opIDs(ops ...keyserver.Operation) []string {
	ids := []string{}
	for _, op := range ops {
		ids = append(ids, op.ID.Hex())
	}
	slices.Sort(ids)
	return ids
}

// TestListRoles checks GET /api/roles: all roles, with a mark for built-in ones.
func TestListRoles(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		s.Refused(t, "", "GET", "/api/roles", nil, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		s.Refused(t, s.with(t, keyserver.RoleEncryptor), "GET", "/api/roles", nil, http.StatusForbidden, "ACCESS_DENIED")

		s.role(t, "custom")
		a := s.OK(t, s.AsAdmin(t), "GET", "/api/roles", nil)
		roles := a.List(t, "roles")
		if a.Body["count"] != float64(len(roles)) {
			t.Errorf("lists %v roles and counts %v", len(roles), a.Body["count"])
		}
		for _, b := range keyserver.BuiltInRoles(keyserver.Unified) {
			if !slices.ContainsFunc(roles, func(r rig.Object) bool { return r["id"] == b.ID.Hex() && r["builtIn"] == true }) {
				t.Errorf("role %v is not marked as built in: %s", b.Name, a.Raw)
			}
		}
		if !slices.ContainsFunc(roles, func(r rig.Object) bool { return r["name"] == s.name("custom") && r["builtIn"] == false }) {
			t.Errorf("a custom role is not told from one that is built in: %s", a.Raw)
		}
	})
}

// PUT /api/roles/{id}: rename, replace the operation set, or both.
func TestUpdateRole(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		id := s.OK(t, admin, "POST", "/api/roles", rig.Object{"name": s.name("before"), "operations": opIDs(keyserver.OpHMAC)}).Text(t, "id")
		path := "/api/roles/" + id
		refusals := map[string]struct {
			path   string
			body   any
			status int
			code   string
			names  string // text that the detail must contain
		}{
			"MalformedID":         {"/api/roles/xyz", rig.Object{"name": "x"}, 400, "BAD_REQUEST", "id"},
			"DecimalID":           {"/api/roles/12345", rig.Object{"name": "x"}, 400, "BAD_REQUEST", "id"},
			"NeitherField":        {path, rig.Object{}, 400, "BAD_REQUEST", "name"},
			"EmptyName":           {path, rig.Object{"name": ""}, 400, "BAD_REQUEST", "name"},
			"OperationsNoArray":   {path, rig.Object{"operations": "all"}, 400, "BAD_REQUEST", "operations"},
			"OperationsMalformed": {path, rig.Object{"operations": []string{"HMAC Data"}}, 400, "BAD_REQUEST", "operations"},
			"OperationsUnknown":   {path, rig.Object{"operations": []string{"00000000deadbeef"}}, 400, "BAD_REQUEST", "operations"},
			"UnknownMember":       {path, rig.Object{"name": "x", "nane": "y"}, 400, "BAD_REQUEST", "nane"},
			"DuplicateMember":     {path, `{"name":"x","name":"y"}`, 400, "BAD_REQUEST", "name"},
			"BuiltIn":             {"/api/roles/" + keyserver.RoleAuditor.Hex(), rig.Object{"name": "x"}, 403, "BUILT_IN", ""},
			"Unknown":             {"/api/roles/00000000deadbeef", rig.Object{"name": "x"}, 404, "NOT_FOUND", ""},
		}
		for name, tc := range refusals {
			t.Run(name, func(t *testing.T) {
				a := s.Refused(t, admin, "PUT", tc.path, tc.body, tc.status, tc.code)
				if detail, _ := a.Body["detail"].(string); !strings.Contains(detail, tc.names) {
					t.Errorf("the detail %q does not name %q", detail, tc.names)
				}
			})
		}
		s.Refused(t, s.with(t, keyserver.RoleSecurityOfficer), "PUT", path, rig.Object{"name": "x"}, http.StatusForbidden, "ACCESS_DENIED")

		after := s.name("after")
		a := s.OK(t, admin, "PUT", path, rig.Object{"name": after})
		if a.Body["saved"] != true || a.Body["requested"] != after || a.Text(t, "role", "name") != after {
			t.Errorf("renamed: %s", a.Raw)
		}
		if _, sent := a.Body["requestedOperations"]; sent {
			t.Errorf("requestedOperations is there although none were sent: %s", a.Raw)
		}
		a = s.OK(t, admin, "PUT", path, rig.Object{"operations": []string{}})
		if ops, _ := a.At(t, "role", "operations").([]any); a.Body["saved"] != true || len(ops) != 0 || a.Text(t, "role", "name") != after {
			t.Errorf("emptied: %s", a.Raw)
		}
	})
}
