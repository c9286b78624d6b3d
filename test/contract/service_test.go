package contract

import (
	"bytes"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// versioned configures the version of servers.
func versioned(c *server.Config) {
	c.Version = keyserver.Version{Major: 2, Minor: 3, Build: 5, Edition: 7, Banner: "a banner"}
}

// POST /api/server/version: the version record.
func TestVersion(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		s.Refused(t, "", "POST", "/api/server/version", nil, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		s.Refused(t, s.AsAdmin(t), "GET", "/api/server/version", nil, http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")
		s.Refused(t, s.AsAdmin(t), "POST", "/api/server/version", `{"x":1}`, http.StatusBadRequest, "BAD_REQUEST")
		for _, role := range keyserver.BuiltInRoles(keyserver.Unified) {
			a := s.OK(t, s.with(t, role.ID), "POST", "/api/server/version", nil)
			delete(a.Body, "detail")
			want := rig.Object{"major": 2.0, "minor": 3.0, "build": 5.0, "edition": 7.0, "version": "a banner"}
			if diff := cmp.Diff(want, a.Body); diff != "" {
				t.Errorf("%s: %s", role.Name, diff)
			}
		}
	})
}

// TestSessionLife checks that a session can be read until it ends, and is unknown after that.
func TestSessionLife(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		for name, body := range map[string]any{
			"NoMethod": rig.Object{"name": "admin", "password": "x"}, "UnknownMethod": rig.Object{"method": "psychic", "name": "a", "password": "b"},
			"NoName": rig.Object{"method": "password", "password": "x"}, "NoPassword": rig.Object{"method": "password", "name": "admin"},
		} {
			t.Run(name, func(t *testing.T) {
				s.Refused(t, "", "POST", "/api/sessions", body, http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		a := s.Refused(t, "", "POST", "/api/sessions", rig.Object{"method": "password", "name": s.Administrator.Name, "password": "wrong password"},
			http.StatusUnauthorized, "INVALID_CREDENTIALS")
		if a.Header.Get("WWW-Authenticate") == "" {
			t.Error("a 401 without WWW-Authenticate")
		}
		session := s.with(t, keyserver.RoleAuditor)
		a = s.OK(t, session, "GET", "/api/sessions/current", nil)
		if a.Body["kind"] != "password" || a.Body["boundKey"] != nil || a.Text(t, "expiresAt") == "" || a.Text(t, "idleExpiresAt") == "" {
			t.Errorf("got %s", a.Raw)
		}
		if cookies := a.Header.Values("Set-Cookie"); len(cookies) != 0 {
			t.Errorf("a cookie is set: %v", cookies)
		}
		s.OK(t, session, "DELETE", "/api/sessions/current", nil)
		a = s.Refused(t, session, "GET", "/api/sessions/current", nil, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		if a.Body["reauth"] != true {
			t.Errorf("a session failure without reauth: %s", a.Raw)
		}
	})
}

// TestUnknownRoutes checks that unknown paths and methods also get JSON.
func TestUnknownRoutes(t *testing.T) {
	s := one(t)
	for _, path := range []string{"/", "/api", "/api/", "/api/nope", "/api//roles", "/api/roles/", "/api/../api/roles", "/api/roles/0000000000000001/x"} {
		s.Refused(t, s.AsAdmin(t), "GET", path, nil, http.StatusNotFound, "NOT_FOUND")
	}
	a := s.Refused(t, s.AsAdmin(t), "PATCH", "/api/roles", nil, http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")
	if a.Header.Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("Allow is %q", a.Header.Get("Allow"))
	}
}

// Health and readiness need no session, and readiness names its parts.
func TestHealthAndReadiness(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		s.OK(t, "", "GET", "/api/health", nil)
		a := s.OK(t, "", "GET", "/api/ready", nil)
		if parts := a.List(t, "parts"); a.Body["ready"] != true || len(parts) == 0 {
			t.Errorf("got %s", a.Raw)
		}
		s.Refused(t, "", "GET", "/api/ready?verbose=1", nil, http.StatusBadRequest, "BAD_REQUEST")
	})
}

// TestListOperations checks GET /api/operations: the operations that a role can grant, sorted by their permanent ids.
func TestListOperations(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		s.Refused(t, "", "GET", "/api/operations", nil, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		s.Refused(t, s.AsAdmin(t), "GET", "/api/operations?duty=trust", nil, http.StatusBadRequest, "BAD_REQUEST")

		a := s.OK(t, s.with(t, keyserver.RoleExchanger), "GET", "/api/operations", nil)
		ops := a.List(t, "operations")
		if a.Body["count"] != float64(len(keyserver.Operations)) || len(ops) != len(keyserver.Operations) {
			t.Fatalf("%d operations, count %v, of %d", len(ops), a.Body["count"], len(keyserver.Operations))
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

// TestOpenAPIDocument checks that GET /api/openapi.json needs no session and returns docs/openapi.json.
func TestOpenAPIDocument(t *testing.T) {
	s := one(t)
	s.Refused(t, "", "GET", "/api/openapi.json?format=yaml", nil, http.StatusBadRequest, "BAD_REQUEST")
	a := s.OK(t, "", "GET", "/api/openapi.json", nil)
	published, err := os.ReadFile("../../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.TrimSpace(a.Raw), bytes.TrimSpace(published)) {
		t.Error("the service answers another document than docs/openapi.json; run make generate")
	}
}

// TestChanges checks the change feed: the changes committed after a cursor, in order.
func TestChanges(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		_, cursor := s.Changes(t, admin, "0")
		before, err := strconv.ParseFloat(cursor, 64)
		rig.Must(t, err)
		id := s.OK(t, admin, "POST", "/api/roles", rig.Object{"name": s.name("one"), "operations": []string{}}).Text(t, "id")
		s.OK(t, admin, "DELETE", "/api/roles/"+id, nil)
		a := s.OK(t, admin, "GET", "/api/changes?wait=1&after="+cursor, nil)
		changes := a.List(t, "changes")
		if len(changes) != 2 || changes[0]["action"] != "created" || changes[1]["action"] != "deleted" || changes[0]["seq"] != before+1 {
			t.Errorf("got %s", a.Raw)
		}
		if a = s.OK(t, admin, "GET", "/api/changes?after=999999", nil); a.Body["reset"] != true {
			t.Errorf("a cursor from another life: %s", a.Raw)
		}
		for _, query := range []string{"after=-1", "after=x", "after=0&wait=61", "after=0&wait=-1", "after=0&waits=1"} {
			s.Refused(t, admin, "GET", "/api/changes?"+query, nil, http.StatusBadRequest, "BAD_REQUEST")
		}
		s.Refused(t, s.with(t, keyserver.RoleEncryptor), "GET", "/api/changes?after=0", nil, http.StatusForbidden, "ACCESS_DENIED")
	}, alone)
}

// TestBodyLimit checks that a body over the route's limit is refused and not truncated.
func TestBodyLimit(t *testing.T) {
	s := one(t)
	long := `{"name":"` + strings.Repeat("x", 128<<10) + `","operations":[]}`
	s.Refused(t, s.AsAdmin(t), "POST", "/api/roles", long, http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE")
}
