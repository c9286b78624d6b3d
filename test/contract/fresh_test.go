package contract

import (
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// TestAFreshServer checks the lists that a new server returns.
func TestAFreshServer(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		for path, list := range map[string]string{
			"/api/acl-templates": "templates", "/api/templated-directories": "directories", "/api/trusted-cas": "trustedCAs",
			"/api/trusted-servers": "trustedServers", "/api/principal-trusts": "principalTrusts", "/api/revocation/issuers": "issuers",
			ownersPath + "?kind=key": "owners", ownersPath + "?kind=role": "owners", "/api/approvals": "approvals",
		} {
			a := s.OK(t, admin, "GET", path, nil)
			if n, counted := a.Body["count"]; len(a.List(t, list)) != 0 || counted && n != 0.0 || a.Body["next"] != nil {
				t.Errorf("%s lists %s", path, a.Raw)
			}
			if path == "/api/trusted-servers" && a.Body["matchedOn"] != nil {
				t.Errorf("nothing was asked for by name: %s", a.Raw)
			}
		}
		if a := s.OK(t, admin, "GET", "/api/acl-templates", nil); a.Body["count"] != 0.0 {
			t.Errorf("no count of templates: %s", a.Raw)
		}
		if a := s.OK(t, admin, "GET", ownersPath+"?kind=key", nil); a.Body["count"] != 0.0 {
			t.Errorf("no count of owners: %s", a.Raw)
		}
		if a := s.OK(t, admin, "GET", "/api/revocation/issuers", nil); a.Body["count"] != 0.0 {
			t.Errorf("no count of issuers: %s", a.Raw)
		}
		a := s.OK(t, admin, "GET", "/api/roles", nil)
		roles := a.List(t, "roles")
		if len(roles) != len(keyserver.BuiltInRoles(keyserver.Unified)) || a.Body["count"] != float64(len(roles)) {
			t.Errorf("%d roles: %s", len(roles), a.Raw)
		}
		for _, r := range roles {
			if r["builtIn"] != true {
				t.Errorf("role %v is not marked as built in", r["name"])
			}
		}
		if a := s.OK(t, admin, "POST", "/api/certificates/by-subject", map[string]any{"subject": "%"}); a.Body["count"] != 0.0 {
			t.Errorf("certificates: %s", a.Raw)
		}
		s.systemDefined(t)
	}, untouched)
}
