package contract

import (
	"bytes"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
)

// POST /api/server/version: the version record.
func TestVersion(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		s.refused(t, "", "POST", "/api/server/version", nil, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		s.refused(t, s.admin(t), "GET", "/api/server/version", nil, http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")
		s.refused(t, s.admin(t), "POST", "/api/server/version", `{"x":1}`, http.StatusBadRequest, "BAD_REQUEST")
		for _, role := range keyserver.BuiltInRoles(keyserver.Unified) {
			a := s.ok(t, s.with(t, role.ID), "POST", "/api/server/version", nil)
			delete(a.body, "detail")
			want := object{"major": 2.0, "minor": 3.0, "build": 5.0, "edition": 7.0, "version": "a banner"}
			if diff := cmp.Diff(want, a.body); diff != "" {
				t.Errorf("%s: %s", role.Name, diff)
			}
		}
	}, func(c *server.Config) {
		c.Version = keyserver.Version{Major: 2, Minor: 3, Build: 5, Edition: 7, Banner: "a banner"}
	})
}

// Sessions: described while alive, unknown once ended.
func TestSessionLife(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		for name, body := range map[string]any{
			"NoMethod": object{"name": "admin", "password": "x"}, "UnknownMethod": object{"method": "psychic", "name": "a", "password": "b"},
			"NoName": object{"method": "password", "password": "x"}, "NoPassword": object{"method": "password", "name": "admin"},
		} {
			t.Run(name, func(t *testing.T) {
				s.refused(t, "", "POST", "/api/sessions", body, http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		a := s.refused(t, "", "POST", "/api/sessions", object{"method": "password", "name": "admin", "password": "wrong password"},
			http.StatusUnauthorized, "INVALID_CREDENTIALS")
		if a.header.Get("WWW-Authenticate") == "" {
			t.Error("a 401 without WWW-Authenticate")
		}
		session := s.with(t, keyserver.RoleAuditor)
		a = s.ok(t, session, "GET", "/api/sessions/current", nil)
		if a.body["kind"] != "password" || a.body["boundKey"] != nil || a.text(t, "expiresAt") == "" || a.text(t, "idleExpiresAt") == "" {
			t.Errorf("got %s", a.raw)
		}
		if cookies := a.header.Values("Set-Cookie"); len(cookies) != 0 {
			t.Errorf("a cookie is set: %v", cookies)
		}
		s.ok(t, session, "DELETE", "/api/sessions/current", nil)
		a = s.refused(t, session, "GET", "/api/sessions/current", nil, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		if a.body["reauth"] != true {
			t.Errorf("a session failure without reauth: %s", a.raw)
		}
	})
}

// Unknown paths and methods are JSON too.
func TestUnknownRoutes(t *testing.T) {
	s := one(t)
	for _, path := range []string{"/", "/api", "/api/", "/api/nope", "/api//roles", "/api/roles/", "/api/../api/roles", "/api/roles/0000000000000001/x"} {
		s.refused(t, s.admin(t), "GET", path, nil, http.StatusNotFound, "NOT_FOUND")
	}
	a := s.refused(t, s.admin(t), "PATCH", "/api/roles", nil, http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")
	if a.header.Get("Allow") != "GET, POST" {
		t.Errorf("Allow is %q", a.header.Get("Allow"))
	}
}

// Health and readiness need no session, and readiness names its parts.
func TestHealthAndReadiness(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		s.ok(t, "", "GET", "/api/health", nil)
		a := s.ok(t, "", "GET", "/api/ready", nil)
		if parts := a.list(t, "parts"); a.body["ready"] != true || len(parts) == 0 {
			t.Errorf("got %s", a.raw)
		}
		s.refused(t, "", "GET", "/api/ready?verbose=1", nil, http.StatusBadRequest, "BAD_REQUEST")
	})
}

// GET /api/operations: what a role can grant, in the order of permanent ids.
func TestListOperations(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		s.refused(t, "", "GET", "/api/operations", nil, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		s.refused(t, s.admin(t), "GET", "/api/operations?duty=trust", nil, http.StatusBadRequest, "BAD_REQUEST")

		a := s.ok(t, s.with(t, keyserver.RoleExchanger), "GET", "/api/operations", nil)
		ops := a.list(t, "operations")
		if a.body["count"] != float64(len(keyserver.Operations)) || len(ops) != len(keyserver.Operations) {
			t.Fatalf("%d operations, count %v, of %d", len(ops), a.body["count"], len(keyserver.Operations))
		}
		names := map[string]any{}
		for i, op := range ops {
			if i > 0 && op["id"].(string) <= ops[i-1]["id"].(string) {
				t.Errorf("operation %v is out of order", op["id"])
			}
			names[op["name"].(string)] = op["id"]
		}
		if names["HMAC Data"] != keyserver.OpHMAC.ID.Hex() {
			t.Errorf("HMAC Data has the id %v", names["HMAC Data"])
		}
	})
}

// GET /api/openapi.json needs no session and is the document under docs.
func TestOpenAPIDocument(t *testing.T) {
	s := one(t)
	s.refused(t, "", "GET", "/api/openapi.json?format=yaml", nil, http.StatusBadRequest, "BAD_REQUEST")
	a := s.ok(t, "", "GET", "/api/openapi.json", nil)
	published, err := os.ReadFile("../../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.TrimSpace(a.raw), bytes.TrimSpace(published)) {
		t.Error("the service answers another document than docs/openapi.json; run make generate")
	}
}

// The change feed: what was committed after a cursor, in order.
func TestChanges(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.admin(t)
		cursor := s.ok(t, admin, "GET", "/api/changes?after=0", nil).body["cursor"].(float64)
		id := s.ok(t, admin, "POST", "/api/roles", object{"name": "one", "operations": []string{}}).text(t, "id")
		s.ok(t, admin, "DELETE", "/api/roles/"+id, nil)
		a := s.ok(t, admin, "GET", "/api/changes?wait=1&after="+number(cursor), nil)
		changes := a.list(t, "changes")
		if len(changes) != 2 || changes[0]["action"] != "created" || changes[1]["action"] != "deleted" || changes[0]["seq"] != cursor+1 {
			t.Errorf("got %s", a.raw)
		}
		if a = s.ok(t, admin, "GET", "/api/changes?after=999999", nil); a.body["reset"] != true {
			t.Errorf("a cursor from another life: %s", a.raw)
		}
		for _, query := range []string{"after=-1", "after=x", "after=0&wait=61", "after=0&wait=-1", "after=0&waits=1"} {
			s.refused(t, admin, "GET", "/api/changes?"+query, nil, http.StatusBadRequest, "BAD_REQUEST")
		}
		s.refused(t, s.with(t, keyserver.RoleEncryptor), "GET", "/api/changes?after=0", nil, http.StatusForbidden, "ACCESS_DENIED")
	})
}

// A body over the route's limit is refused, not cut.
func TestBodyLimit(t *testing.T) {
	s := one(t)
	long := `{"name":"` + strings.Repeat("x", 128<<10) + `","operations":[]}`
	s.refused(t, s.admin(t), "POST", "/api/roles", long, http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE")
}
