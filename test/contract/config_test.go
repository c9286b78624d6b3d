package contract

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestReadConfiguration checks POST /api/config/get: refusals, the path grammar, that it returns only attributes, and
// the settings that it hides.
func TestReadConfiguration(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		const path = "/api/config/get"
		admin := s.AsAdmin(t)
		root := rig.Object{"xpath": "ROOT"}
		s.Refused(t, "", "POST", path, root, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		for _, role := range []keyserver.ID{keyserver.RoleEncryptor, keyserver.RoleExchanger} {
			s.Refused(t, s.with(t, role), "POST", path, root, http.StatusForbidden, "ACCESS_DENIED")
		}
		refusals := map[string]struct {
			body   any
			status int
			code   string
		}{
			"Absent":       {rig.Object{}, 400, "BAD_REQUEST"},
			"Empty":        {rig.Object{"xpath": ""}, 400, "BAD_REQUEST"},
			"Slash":        {rig.Object{"xpath": "/"}, 400, "BAD_REQUEST"},
			"LeadingSlash": {rig.Object{"xpath": "/Listeners"}, 400, "BAD_REQUEST"},
			"SlashRoot":    {rig.Object{"xpath": "/ROOT"}, 400, "BAD_REQUEST"},
			"Wildcard":     {rig.Object{"xpath": "*"}, 400, "BAD_REQUEST"},
			"NoPath":       {rig.Object{"xpath": 1}, 400, "BAD_REQUEST"},
			"Unknown":      {rig.Object{"xpath": "Nothing"}, 404, "NOT_FOUND"},
			"WrongValue":   {rig.Object{"xpath": "Listeners.Listener[@name=none]"}, 404, "NOT_FOUND"},
			"SecretValue":  {rig.Object{"xpath": "KeyEncryptionKey[@url=]"}, 404, "NOT_FOUND"},
			"Case":         {rig.Object{"xpath": "listeners"}, 404, "NOT_FOUND"},
		}
		for name, tc := range refusals {
			t.Run(name, func(t *testing.T) {
				a := s.Refused(t, admin, "POST", path, tc.body, tc.status, tc.code)
				if !strings.Contains(a.Text(t, "detail"), "xpath") {
					t.Errorf("the detail %q does not name xpath", a.Text(t, "detail"))
				}
			})
		}

		a := s.OK(t, admin, "POST", path, root)
		nodes := a.List(t, "nodes")
		if len(nodes) < 5 || nodes[0]["tag"] != "ROOT" || nodes[0]["xpath"] != "ROOT" {
			t.Fatalf("the root: %s", a.Raw)
		}
		allowed, _ := a.Body["allowList"].(rig.Object)
		for _, n := range nodes {
			attributes, listed := allowed[n["tag"].(string)].([]any)
			if !listed {
				t.Errorf("%v left and is not in the table", n)
			}
			if len(n) != 3 {
				t.Errorf("%v is not tag, xpath and attrs", n)
			}
			for name := range n["attrs"].(rig.Object) {
				found := false
				for _, a := range attributes {
					found = found || a == name
				}
				if !found {
					t.Errorf("%s of %v left and is not in the table", name, n["tag"])
				}
			}
			one := s.OK(t, admin, "POST", path, rig.Object{"xpath": n["xpath"]}).List(t, "nodes")
			if len(one) == 0 || one[0]["xpath"] != n["xpath"] {
				t.Errorf("%v names %v", n["xpath"], one)
			}
		}
		for _, role := range []keyserver.ID{keyserver.RoleAdministrator, keyserver.RoleAuditor} {
			s.OK(t, s.with(t, role), "POST", path, rig.Object{"xpath": "Listeners.Listener[@name=api]"})
		}
		a = s.OK(t, admin, "POST", path, rig.Object{"xpath": "KeyServer"})
		if attrs := a.List(t, "nodes")[0]["attrs"].(rig.Object); attrs["systemId"] != "1" || attrs["deployment"] != "unified" || a.Body["suppressed"] != float64(0) {
			t.Errorf("the key server: %s", a.Raw)
		}
	})
}

// TestReadConfigurationOnASplitDeployment checks that the Security Officer cannot read the configuration in a
// split deployment.
func TestReadConfigurationOnASplitDeployment(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		root := rig.Object{"xpath": "ROOT"}
		s.Refused(t, s.with(t, keyserver.RoleSecurityOfficer), "POST", "/api/config/get", root, http.StatusForbidden, "ACCESS_DENIED")
		s.OK(t, s.AsAdmin(t), "POST", "/api/config/get", root)
	}, split)
}
