package contract

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// POST /api/config/get: refusals, the path grammar, attributes only, and what
// is suppressed.
func TestReadConfiguration(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		const path = "/api/config/get"
		admin := s.admin(t)
		root := object{"xpath": "ROOT"}
		s.refused(t, "", "POST", path, root, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		for _, role := range []keyserver.ID{keyserver.RoleEncryptor, keyserver.RoleExchanger} {
			s.refused(t, s.with(t, role), "POST", path, root, http.StatusForbidden, "ACCESS_DENIED")
		}
		refusals := map[string]struct {
			body   any
			status int
			code   string
		}{
			"Absent":       {object{}, 400, "BAD_REQUEST"},
			"Empty":        {object{"xpath": ""}, 400, "BAD_REQUEST"},
			"Slash":        {object{"xpath": "/"}, 400, "BAD_REQUEST"},
			"LeadingSlash": {object{"xpath": "/Listeners"}, 400, "BAD_REQUEST"},
			"SlashRoot":    {object{"xpath": "/ROOT"}, 400, "BAD_REQUEST"},
			"Wildcard":     {object{"xpath": "*"}, 400, "BAD_REQUEST"},
			"NoPath":       {object{"xpath": 1}, 400, "BAD_REQUEST"},
			"Unknown":      {object{"xpath": "Nothing"}, 404, "NOT_FOUND"},
			"WrongValue":   {object{"xpath": "Listeners.Listener[@name=none]"}, 404, "NOT_FOUND"},
			"SecretValue":  {object{"xpath": "KeyEncryptionKey[@url=]"}, 404, "NOT_FOUND"},
			"Case":         {object{"xpath": "listeners"}, 404, "NOT_FOUND"},
		}
		for name, tc := range refusals {
			t.Run(name, func(t *testing.T) {
				a := s.refused(t, admin, "POST", path, tc.body, tc.status, tc.code)
				if !strings.Contains(a.text(t, "detail"), "xpath") {
					t.Errorf("the detail %q does not name xpath", a.text(t, "detail"))
				}
			})
		}

		a := s.ok(t, admin, "POST", path, root)
		nodes := a.list(t, "nodes")
		if len(nodes) < 5 || nodes[0]["tag"] != "ROOT" || nodes[0]["xpath"] != "ROOT" {
			t.Fatalf("the root: %s", a.raw)
		}
		allowed, _ := a.body["allowList"].(object)
		for _, n := range nodes {
			attributes, listed := allowed[n["tag"].(string)].([]any)
			if !listed {
				t.Errorf("%v left and is not in the table", n)
			}
			if len(n) != 3 {
				t.Errorf("%v is not tag, xpath and attrs", n)
			}
			for name := range n["attrs"].(object) {
				found := false
				for _, a := range attributes {
					found = found || a == name
				}
				if !found {
					t.Errorf("%s of %v left and is not in the table", name, n["tag"])
				}
			}
			one := s.ok(t, admin, "POST", path, object{"xpath": n["xpath"]}).list(t, "nodes")
			if len(one) == 0 || one[0]["xpath"] != n["xpath"] {
				t.Errorf("%v names %v", n["xpath"], one)
			}
		}
		for _, role := range []keyserver.ID{keyserver.RoleAdministrator, keyserver.RoleAuditor} {
			s.ok(t, s.with(t, role), "POST", path, object{"xpath": "Listeners.Listener[@name=api]"})
		}
		a = s.ok(t, admin, "POST", path, object{"xpath": "KeyServer"})
		if attrs := a.list(t, "nodes")[0]["attrs"].(object); attrs["systemId"] != "1" || attrs["deployment"] != "unified" || a.body["suppressed"] != float64(0) {
			t.Errorf("the key server: %s", a.raw)
		}
	})
}

// On a split deployment the Security Officer does not read the configuration.
func TestReadConfigurationOnASplitDeployment(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		root := object{"xpath": "ROOT"}
		s.refused(t, s.with(t, keyserver.RoleSecurityOfficer), "POST", "/api/config/get", root, http.StatusForbidden, "ACCESS_DENIED")
		s.ok(t, s.admin(t), "POST", "/api/config/get", root)
	}, split)
}
