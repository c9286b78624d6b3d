package contract

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func opIDs(ops ...keyserver.Operation) []string {
	ids := []string{}
	for _, op := range ops {
		ids = append(ids, op.ID.Hex())
	}
	slices.Sort(ids)
	return ids
}

// GET /api/roles: the catalogue, built-in roles marked.
func TestListRoles(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		s.refused(t, "", "GET", "/api/roles", nil, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		s.refused(t, s.with(t, keyserver.RoleEncryptor), "GET", "/api/roles", nil, http.StatusForbidden, "ACCESS_DENIED")

		a := s.ok(t, s.admin(t), "GET", "/api/roles", nil)
		roles := a.list(t, "roles")
		if len(roles) != len(keyserver.BuiltInRoles(keyserver.Unified)) || a.body["count"] != float64(len(roles)) {
			t.Errorf("a fresh server lists %v roles and counts %v", len(roles), a.body["count"])
		}
		for _, r := range roles {
			if r["builtIn"] != true {
				t.Errorf("role %v is not marked as built in", r["name"])
			}
		}
	})
}

// PUT /api/roles/{id}: rename, replace the operation set, or both.
func TestUpdateRole(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.admin(t)
		id := s.ok(t, admin, "POST", "/api/roles", object{"name": "before", "operations": opIDs(keyserver.OpHMAC)}).text(t, "id")
		path := "/api/roles/" + id
		refusals := map[string]struct {
			path   string
			body   any
			status int
			code   string
			names  string // what the detail must name
		}{
			"MalformedID":         {"/api/roles/xyz", object{"name": "x"}, 400, "BAD_REQUEST", "id"},
			"DecimalID":           {"/api/roles/12345", object{"name": "x"}, 400, "BAD_REQUEST", "id"},
			"NeitherField":        {path, object{}, 400, "BAD_REQUEST", "name"},
			"EmptyName":           {path, object{"name": ""}, 400, "BAD_REQUEST", "name"},
			"OperationsNoArray":   {path, object{"operations": "all"}, 400, "BAD_REQUEST", "operations"},
			"OperationsMalformed": {path, object{"operations": []string{"HMAC Data"}}, 400, "BAD_REQUEST", "operations"},
			"OperationsUnknown":   {path, object{"operations": []string{"00000000deadbeef"}}, 400, "BAD_REQUEST", "operations"},
			"UnknownMember":       {path, object{"name": "x", "nane": "y"}, 400, "BAD_REQUEST", "nane"},
			"DuplicateMember":     {path, `{"name":"x","name":"y"}`, 400, "BAD_REQUEST", "name"},
			"BuiltIn":             {"/api/roles/" + keyserver.RoleAuditor.Hex(), object{"name": "x"}, 403, "BUILT_IN", ""},
			"Unknown":             {"/api/roles/00000000deadbeef", object{"name": "x"}, 404, "NOT_FOUND", ""},
		}
		for name, tc := range refusals {
			t.Run(name, func(t *testing.T) {
				a := s.refused(t, admin, "PUT", tc.path, tc.body, tc.status, tc.code)
				if detail, _ := a.body["detail"].(string); !strings.Contains(detail, tc.names) {
					t.Errorf("the detail %q does not name %q", detail, tc.names)
				}
			})
		}
		s.refused(t, s.with(t, keyserver.RoleSecurityOfficer), "PUT", path, object{"name": "x"}, http.StatusForbidden, "ACCESS_DENIED")

		a := s.ok(t, admin, "PUT", path, object{"name": "after"})
		if a.body["saved"] != true || a.body["requested"] != "after" || a.text(t, "role", "name") != "after" {
			t.Errorf("renamed: %s", a.raw)
		}
		if _, sent := a.body["requestedOperations"]; sent {
			t.Errorf("requestedOperations is there although none were sent: %s", a.raw)
		}
		a = s.ok(t, admin, "PUT", path, object{"operations": []string{}})
		if ops, _ := a.at(t, "role", "operations").([]any); a.body["saved"] != true || len(ops) != 0 || a.text(t, "role", "name") != "after" {
			t.Errorf("emptied: %s", a.raw)
		}
	})
}
