package contract

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

const newPassword = "another password than before"

func byPassword(name, password string) rig.Object {
	return rig.Object{"method": "password", "name": name, "password": password}
}

func passwordOf(id string) string { return "/api/principals/" + id + "/password" }

// PUT /api/principals/{id}/password, clause 9.13.
func TestSetPassword(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		ann := s.principal(t, "ann")
		session, _ := s.opens(t, "ann")
		second, _ := s.opens(t, "ann")
		group := s.group(t, "group")
		ldap := created(t, s.OK(t, admin, "POST", "/api/principals/ldap", rig.Object{"name": "lena", "roleIds": []string{}}))
		body := rig.Object{"password": newPassword}
		s.Refused(t, "", "PUT", passwordOf(ann), body, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		s.Refused(t, session, "PUT", passwordOf(s.self(t, admin)), body, http.StatusForbidden, "ACCESS_DENIED")
		scope := s.OK(t, session, "POST", sessions, scoped("AAAAAQ==")).Text(t, "sessionId")
		s.Refused(t, scope, "PUT", passwordOf(ann), body, http.StatusForbidden, "ACCESS_DENIED")
		s.refusals(t, session, "PUT", map[string]refusal{
			"NoCurrent":    {passwordOf(ann), body, 400, "BAD_REQUEST", "current"},
			"WrongCurrent": {passwordOf(ann), join(body, rig.Object{"current": newPassword}), 401, "INVALID_CREDENTIALS", "current"},
			"Short":        {passwordOf(ann), rig.Object{"password": "1234567", "current": somePassword}, 400, "BAD_REQUEST", "password"},
			"Long":         {passwordOf(ann), rig.Object{"password": strings.Repeat("x", 1025), "current": somePassword}, 400, "BAD_REQUEST", "password"},
		})
		s.refusals(t, admin, "PUT", map[string]refusal{
			"Nobody":          {passwordOf(nobody), body, 404, "NOT_FOUND", nobody},
			"Group":           {passwordOf(group), body, 409, "NO_PASSWORD", "group"},
			"LDAP":            {passwordOf(ldap), body, 409, "NO_PASSWORD", "ldap"},
			"AnothersCurrent": {passwordOf(ann), join(body, rig.Object{"current": somePassword}), 400, "BAD_REQUEST", "current"},
			"NoPassword":      {passwordOf(ann), rig.Object{}, 400, "BAD_REQUEST", "password"},
			"System":          {passwordOf(s.systemDefined(t)), body, 409, "NO_PASSWORD", "certificate"},
		})
		s.OK(t, session, "GET", where, nil)

		a := s.OK(t, session, "PUT", passwordOf(ann), join(body, rig.Object{"current": somePassword}))
		if a.Body["saved"] != true || a.Body["sessionsEnded"] != 3.0 {
			t.Errorf("ann's own: %s", a.Raw)
		}
		for _, ended := range []string{session, second, scope} {
			s.Refused(t, ended, "GET", where, nil, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		}
		s.Refused(t, "", "POST", sessions, byPassword("ann", somePassword), http.StatusUnauthorized, "INVALID_CREDENTIALS")
		s.OK(t, "", "POST", sessions, byPassword("ann", newPassword))
		if a = s.OK(t, admin, "PUT", passwordOf(ann), rig.Object{"password": somePassword}); a.Body["sessionsEnded"] != 1.0 {
			t.Errorf("by the administrator: %s", a.Raw)
		}
		s.OK(t, "", "POST", sessions, byPassword("ann", somePassword))
		if rows := s.OK(t, admin, "GET", "/api/audit?operation=setPassword", nil).List(t, "entries"); len(rows) < 6 {
			t.Errorf("the trail has %d rows", len(rows))
		}
	})
}

// Whoever has found a session guesses its password no faster than a stranger.
func TestGuessesOfCurrentAreThrottled(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		ann := s.principal(t, "ann")
		session, _ := s.opens(t, "ann")
		wrong := rig.Object{"password": newPassword, "current": "a guess"}
		guesses := 0
		a := s.Send(t, session, "PUT", passwordOf(ann), wrong)
		for ; a.Code() == "INVALID_CREDENTIALS" && guesses < 40; guesses++ {
			a = s.Send(t, session, "PUT", passwordOf(ann), wrong)
		}
		is(t, a, http.StatusTooManyRequests, "LOGIN_THROTTLED")
		if after, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || after < 1 || guesses > 20 {
			t.Errorf("after %d guesses Retry-After is %q", guesses, a.Header.Get("Retry-After"))
		}
		s.Refused(t, "", "POST", sessions, byPassword("ann", somePassword), http.StatusTooManyRequests, "LOGIN_THROTTLED")
		s.OK(t, session, "GET", where, nil)
	})
}

// To set somebody's password is to become him, which takes what he holds: where
// duties are apart neither side becomes the other.
func TestSetPasswordGivesNothing(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, officer := s.AsAdmin(t), s.self(t, s.As(t, s.Officer.Name, s.Officer.Password))
		a := s.Refused(t, admin, "PUT", passwordOf(officer), rig.Object{"password": newPassword}, http.StatusForbidden, "ESCALATION")
		if !strings.Contains(a.Text(t, "detail"), "which the caller does not hold") {
			t.Errorf("the detail names no operation: %s", a.Raw)
		}
		s.OK(t, "", "POST", sessions, byPassword(s.Officer.Name, s.Officer.Password))
		s.OK(t, admin, "PUT", passwordOf(s.principal(t, "user", keyserver.RoleEncryptor)), rig.Object{"password": newPassword})
	}, split)
}

// replicas are two servers over one database.
func replicas(t *testing.T) (one, other *subject) {
	t.Helper()
	share := func(c *server.Config) {
		c.KEK = "base64key://" + base64.URLEncoding.EncodeToString(make([]byte, 32))
	}
	database := databases["PostgreSQL"](t)
	return start(t, database, share), start(t, database, share)
}

// What is changed at one replica counts at the other at once.
func TestSetPasswordOnReplicas(t *testing.T) {
	one, other := replicas(t)
	ann := one.principal(t, "ann")
	here, _ := one.opens(t, "ann")
	there, _ := other.opens(t, "ann")
	other.OK(t, here, "GET", where, nil)
	one.OK(t, here, "PUT", passwordOf(ann), rig.Object{"password": newPassword, "current": somePassword})
	other.Refused(t, "", "POST", sessions, byPassword("ann", somePassword), http.StatusUnauthorized, "INVALID_CREDENTIALS")
	other.OK(t, "", "POST", sessions, byPassword("ann", newPassword))
	for _, session := range []string{here, there} {
		other.until(t, session, "GET", where, http.StatusUnauthorized, "SESSION_NOT_FOUND") // within a second
	}
}
