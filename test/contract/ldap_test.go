package contract

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/directory"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/ldaptest"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
)

func byDirectory(d *ldaptest.Server) func(*server.Config) {
	return func(c *server.Config) {
		c.Providers.LDAP = directory.Config{URL: "ldaps://" + d.Secure, CAFile: d.CAFile, UserDN: ldaptest.UserDN}
	}
}

func ldapLogin(name, password string) object {
	return object{"method": "ldap", "name": name, "password": password}
}

// Method ldap: every login that is not good is refused in the same words, one
// that the directory confirms opens a session, and a directory that is down is
// no verdict on anybody.
func TestLDAPLogin(t *testing.T) {
	d := ldaptest.Start(t)
	on(t, func(t *testing.T, s *subject) {
		admin := s.admin(t)
		create := func(name string) string {
			return s.ok(t, admin, "POST", "/api/principals/ldap", object{"name": name, "roleIds": []string{keyserver.RoleAuditor.Hex()}}).text(t, "principal", "id")
		}
		// The directory confirms the name, but only a password principal has it here.
		s.ok(t, admin, "POST", "/api/principals/password", object{"name": ldaptest.Ann, "password": ldaptest.AnnPassword, "roleIds": []string{}})
		s.refused(t, "", "POST", "/api/sessions", ldapLogin(ldaptest.Ann, ldaptest.AnnPassword), http.StatusUnauthorized, "INVALID_CREDENTIALS")
		ann, odd := create(ldaptest.Ann), create(ldaptest.Odd)
		create("only here")
		s.ok(t, admin, "POST", "/api/principals/password", object{"name": "reader", "password": "a password for tests", "roleIds": []string{}})
		s.ok(t, admin, "PUT", "/api/principals/"+odd+"/flags", object{"disabled": true})
		detail := ""
		for name, l := range map[string][2]string{
			"WrongPassword":     {ldaptest.Ann, "wrong"},
			"UnknownName":       {"nobody", ldaptest.AnnPassword},
			"NotInTheDirectory": {"only here", ldaptest.AnnPassword},
			"OtherCase":         {"ANN", ldaptest.AnnPassword}, // the directory takes it, but nobody here has the name
			"DNInjection":       {"ann,ou=people", ldaptest.AnnPassword},
			"FilterInjection":   {"*", ldaptest.AnnPassword},
			"PasswordPrincipal": {"reader", "a password for tests"},
			"Disabled":          {ldaptest.Odd, ldaptest.OddPassword},
		} {
			a := s.refused(t, "", "POST", "/api/sessions", ldapLogin(l[0], l[1]), http.StatusUnauthorized, "INVALID_CREDENTIALS")
			if detail == "" {
				detail = a.text(t, "detail")
			}
			if a.text(t, "detail") != detail {
				t.Errorf("%s: %s differs from %q", name, a.raw, detail)
			}
		}
		for name, body := range map[string]object{
			"EmptyPassword": ldapLogin(ldaptest.Ann, ""), "LineBreak": ldapLogin("ann\n", ldaptest.AnnPassword), "NoPassword": {"method": "ldap", "name": ldaptest.Ann}, "NoName": {"method": "ldap", "password": "p"},
			"LongPassword": ldapLogin(ldaptest.Ann, strings.Repeat("p", 1025)), "WithToken": {"method": "ldap", "name": "n", "password": "p", "token": "t"},
		} {
			t.Run(name, func(t *testing.T) {
				s.refused(t, "", "POST", "/api/sessions", body, http.StatusBadRequest, "BAD_REQUEST")
			})
		}

		a := s.ok(t, "", "POST", "/api/sessions", ldapLogin(ldaptest.Ann, ldaptest.AnnPassword))
		if a.body["kind"] != "ldap" || a.text(t, "principal", "id") != ann || a.text(t, "principal", "type") != "ldap" {
			t.Errorf("the session is %s", a.raw)
		}
		s.ok(t, a.text(t, "sessionId"), "GET", "/api/audit", nil)

		d.Kill()
		defer d.Restart(t)
		for _, name := range []string{ldaptest.Ann, "nobody"} {
			a := s.refused(t, "", "POST", "/api/sessions", ldapLogin(name, ldaptest.AnnPassword), http.StatusServiceUnavailable, "IDENTITY_PROVIDER_UNAVAILABLE")
			if a.body["retryable"] != true || a.body["scope"] != "process" || a.header.Get("Retry-After") == "" {
				t.Errorf("got %s", a.raw)
			}
		}
		rows := s.ok(t, admin, "GET", "/api/audit?reason=identityProviderUnavailable", nil).list(t, "entries")
		if len(rows) != 2 || rows[0]["sessionKind"] != "ldap" {
			t.Errorf("the rows are %v", rows)
		}
	}, byDirectory(d))
}

// Guesses are throttled like those of passwords.
func TestLDAPLoginThrottled(t *testing.T) {
	d := ldaptest.Start(t)
	s := start(t, byDirectory(d))
	s.ok(t, s.admin(t), "POST", "/api/principals/ldap", object{"name": ldaptest.Ann, "roleIds": []string{}})
	for range 100 {
		if a := s.send(t, "", "POST", "/api/sessions", ldapLogin(ldaptest.Ann, "wrong")); a.code() == "LOGIN_THROTTLED" {
			s.refused(t, "", "POST", "/api/sessions", ldapLogin(ldaptest.Ann, ldaptest.AnnPassword), http.StatusTooManyRequests, "LOGIN_THROTTLED")
			return
		}
	}
	t.Error("a hundred guesses were let through")
}
