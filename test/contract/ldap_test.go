package contract

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/ldap"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/ldap/ldaptest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

func byDirectory(d *ldaptest.Server) func(*server.Config) {
	return func(c *server.Config) {
		c.Providers.LDAP = ldap.Config{URL: "ldaps://" + d.Secure, CAFile: d.CAFile, UserDN: ldaptest.UserDN}
	}
}

func ldapLogin(name, password string) rig.Object {
	return rig.Object{"method": "ldap", "name": name, "password": password}
}

// TestLDAPLogin checks method ldap: every invalid login gets the same error. A login that the directory confirms opens
// a session. If the directory is down, the error does not say that the credentials are wrong.
func TestLDAPLogin(t *testing.T) {
	d := ldaptest.Start(t)
	ownEmbedded(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		create := func(name string) string {
			return s.OK(t, admin, "POST", "/api/principals/ldap", rig.Object{"name": name, "roleIds": []string{keyserver.RoleAuditor.Hex()}}).Text(t, "principal", "id")
		}
		// The directory confirms this name, but on the key server it belongs to a password principal.
		s.OK(t, admin, "POST", "/api/principals/password", rig.Object{"name": ldaptest.Ann, "password": ldaptest.AnnPassword, "roleIds": []string{}})
		s.Refused(t, "", "POST", "/api/sessions", ldapLogin(ldaptest.Ann, ldaptest.AnnPassword), http.StatusUnauthorized, "INVALID_CREDENTIALS")
		ann, odd := create(ldaptest.Ann), create(ldaptest.Odd)
		create("only here")
		s.OK(t, admin, "POST", "/api/principals/password", rig.Object{"name": "reader", "password": "a password for tests", "roleIds": []string{}})
		s.OK(t, admin, "PUT", "/api/principals/"+odd+"/flags", rig.Object{"disabled": true})
		detail := ""
		for name, l := range map[string][2]string{
			"WrongPassword":     {ldaptest.Ann, "wrong"},
			"UnknownName":       {"nobody", ldaptest.AnnPassword},
			"NotInTheDirectory": {"only here", ldaptest.AnnPassword},
			"OtherCase":         {"ANN", ldaptest.AnnPassword}, // the directory accepts this name, but no principal has it
			"DNInjection":       {"ann,ou=people", ldaptest.AnnPassword},
			"FilterInjection":   {"*", ldaptest.AnnPassword},
			"PasswordPrincipal": {"reader", "a password for tests"},
			"Disabled":          {ldaptest.Odd, ldaptest.OddPassword},
		} {
			a := s.Refused(t, "", "POST", "/api/sessions", ldapLogin(l[0], l[1]), http.StatusUnauthorized, "INVALID_CREDENTIALS")
			if detail == "" {
				detail = a.Text(t, "detail")
			}
			if a.Text(t, "detail") != detail {
				t.Errorf("%s: %s differs from %q", name, a.Raw, detail)
			}
		}
		for name, body := range map[string]rig.Object{
			"EmptyPassword": ldapLogin(ldaptest.Ann, ""), "LineBreak": ldapLogin("ann\n", ldaptest.AnnPassword), "NoPassword": {"method": "ldap", "name": ldaptest.Ann}, "NoName": {"method": "ldap", "password": "p"},
			"LongPassword": ldapLogin(ldaptest.Ann, strings.Repeat("p", 1025)), "WithToken": {"method": "ldap", "name": "n", "password": "p", "token": "t"},
		} {
			t.Run(name, func(t *testing.T) {
				s.Refused(t, "", "POST", "/api/sessions", body, http.StatusBadRequest, "BAD_REQUEST")
			})
		}

		a := s.OK(t, "", "POST", "/api/sessions", ldapLogin(ldaptest.Ann, ldaptest.AnnPassword))
		if a.Body["kind"] != "ldap" || a.Text(t, "principal", "id") != ann || a.Text(t, "principal", "type") != "ldap" {
			t.Errorf("the session is %s", a.Raw)
		}
		s.OK(t, a.Text(t, "sessionId"), "GET", "/api/audit", nil)

		d.Kill()
		for _, name := range []string{ldaptest.Ann, "nobody"} {
			a := s.Refused(t, "", "POST", "/api/sessions", ldapLogin(name, ldaptest.AnnPassword), http.StatusServiceUnavailable, "IDENTITY_PROVIDER_UNAVAILABLE")
			if a.Body["retryable"] != true || a.Body["scope"] != "process" || a.Header.Get("Retry-After") == "" {
				t.Errorf("got %s", a.Raw)
			}
		}
		rows := s.OK(t, admin, "GET", "/api/audit?reason=identityProviderUnavailable", nil).List(t, "entries")
		if len(rows) != 2 || rows[0]["sessionKind"] != "ldap" {
			t.Errorf("the rows are %v", rows)
		}
	}, byDirectory(d))
}

// TestLDAPLoginThrottled checks that password guesses are throttled like those of method password.
func TestLDAPLoginThrottled(t *testing.T) {
	s := one(t, at(providers))
	s.OK(t, s.AsAdmin(t), "POST", "/api/principals/ldap", rig.Object{"name": ldaptest.Ann, "roleIds": []string{}})
	for range 100 {
		if a := s.Send(t, "", "POST", "/api/sessions", ldapLogin(ldaptest.Ann, "wrong")); a.Code() == "LOGIN_THROTTLED" {
			s.Refused(t, "", "POST", "/api/sessions", ldapLogin(ldaptest.Ann, ldaptest.AnnPassword), http.StatusTooManyRequests, "LOGIN_THROTTLED")
			return
		}
	}
	t.Error("a hundred guesses were let through")
}
