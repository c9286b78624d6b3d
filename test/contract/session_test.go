package contract

import (
	"net/http"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// opens opens a session of a user. It returns its secret session id and its public id.
func (s *subject) opens(t testing.TB, name string) (session, id string) {
	t.Helper()
	a := s.OK(t, "", "POST", sessions, s.byPassword(name, somePassword))
	return a.Text(t, "sessionId"), a.Text(t, "id")
}

// TestSessionsAreListedAndEnded checks GET /api/sessions, and ending own sessions and, with a role, other sessions.
func TestSessionsAreListedAndEnded(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		ann := s.principal(t, "ann")
		s.principal(t, "bob")
		session, id := s.opens(t, "ann")
		other, otherID := s.opens(t, "bob")
		own, theirs := sessions+"?principalId="+ann, sessions+"?principalId="+s.self(t, other)

		s.Refused(t, "", "GET", sessions, nil, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		for _, path := range []string{sessions, theirs} {
			s.Refused(t, session, "GET", path, nil, http.StatusForbidden, "ACCESS_DENIED")
		}
		s.Refused(t, s.with(t, keyserver.RoleSecurityOfficer), "DELETE", sessions+"/"+otherID, nil, http.StatusForbidden, "ACCESS_DENIED")
		s.Refused(t, session, "DELETE", sessions+"/"+otherID, nil, http.StatusForbidden, "ACCESS_DENIED")
		s.Refused(t, session, "DELETE", sessions+"/"+nobody, nil, http.StatusForbidden, "ACCESS_DENIED")
		s.refusals(t, admin, "GET", map[string]refusal{
			"NoLimit":    {sessions + "?limit=0", nil, 400, "BAD_REQUEST", "limit"},
			"TooMany":    {sessions + "?limit=1001", nil, 400, "BAD_REQUEST", "limit"},
			"Decimal":    {sessions + "?principalId=12", nil, 400, "BAD_REQUEST", "principalId"},
			"After":      {sessions + "?after=x", nil, 400, "BAD_REQUEST", "after"},
			"SomeOthers": {sessions + "?cursor=1", nil, 400, "BAD_REQUEST", "cursor"},
		})
		s.refusals(t, admin, "DELETE", map[string]refusal{
			"NoSession":   {sessions + "/" + nobody, nil, 404, "NOT_FOUND", nobody},
			"NoPrincipal": {"/api/principals/" + nobody + "/sessions", nil, 404, "NOT_FOUND", nobody},
		})

		list := s.OK(t, session, "GET", own, nil).List(t, "sessions")
		if len(list) != 1 || list[0]["id"] != id || list[0]["address"] != s.from || list[0]["madeFrom"] != nil || list[0]["kind"] != "password" {
			t.Errorf("ann's own sessions: %v", list)
		}
		if a := s.OK(t, session, "GET", "/api/sessions/current", nil); a.Text(t, "id") != id {
			t.Errorf("the session is called %s, and %s at its login", a.Raw, id)
		}
		if all := s.OK(t, admin, "GET", sessions+"?limit=2", nil); len(all.List(t, "sessions")) != 2 || all.Body["next"] == nil {
			t.Errorf("a page of two: %s", all.Raw)
		}

		second, secondID := s.opens(t, "ann")
		if a := s.OK(t, session, "DELETE", sessions+"/"+secondID, nil); string(a.Raw) == "" || a.Body["ended"] != 1.0 {
			t.Errorf("one's own ended without a role: %s", a.Raw)
		}
		s.Refused(t, second, "GET", "/api/sessions/current", nil, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		if a := s.OK(t, admin, "DELETE", "/api/principals/"+ann+"/sessions", nil); a.Body["ended"] != 1.0 {
			t.Errorf("all of ann's: %s", a.Raw)
		}
		s.Refused(t, session, "GET", "/api/sessions/current", nil, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		s.OK(t, other, "GET", "/api/sessions/current", nil)
		if rows := s.OK(t, admin, "GET", s.trail("operation=endSessions"), nil).List(t, "entries"); len(rows) < 3 {
			t.Errorf("the ends are not in the trail: %v", rows)
		}
	})
}
