package contract

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

func delegatesOf(id, pid string) string { return "/api/principals/" + id + "/delegates/" + pid }

// TestNamedDelegates checks a principal with named delegates: no other principal can act for it, regardless of
// its roles. This applies to the login and to each later operation, on every replica.
func TestNamedDelegates(t *testing.T) {
	replicated(t, func(t *testing.T, s, other *subject) {
		admin, link := s.AsAdmin(t), s.mint(t, "key")
		boss := s.principal(t, "boss", keyserver.RoleExchanger)
		s.flags(t, boss, rig.Object{"delegation": true})
		s.readable(t, link, boss)
		one, two := s.User(t, "one", keyserver.RoleExchanger), s.User(t, "two", keyserver.RoleExchanger)
		used := rig.Object{"ttag": link}
		unnamed := s.delegate(t, one.Session, boss) // so far, no delegate is named
		other.OK(t, unnamed, "POST", authorize, used)

		a := s.OK(t, admin, "PUT", delegatesOf(boss, two.ID), nil)
		if a.Body["saved"] != true || a.Body["delegation"] != true || a.Body["delegateId"] != two.ID || fmt.Sprint(a.At(t, "principal", "delegates")) != "["+two.ID+"]" {
			t.Errorf("named: %s", a.Raw)
		}
		s.OK(t, admin, "PUT", delegatesOf(boss, two.ID), nil) // the same delegate again
		for _, at := range []*subject{s, other} {
			at.Refused(t, unnamed, "POST", authorize, used, http.StatusForbidden, "DELEGATOR_REFUSED")
			at.Refused(t, one.Session, "POST", sessions, delegated(boss), http.StatusForbidden, "DELEGATOR_REFUSED")
			at.OK(t, at.delegate(t, two.Session, boss), "POST", authorize, used)
		}
		if p := s.OK(t, admin, "GET", "/api/principals/"+boss, nil); fmt.Sprint(p.Body["delegates"]) != "["+two.ID+"]" || p.Body["delegation"] != true || p.Body["systemDefined"] != nil {
			t.Errorf("reads back as %s", p.Raw)
		}
		named := other.delegate(t, two.Session, boss)
		s.OK(t, admin, "PUT", delegatesOf(boss, one.ID), nil)
		s.OK(t, unnamed, "POST", authorize, used)
		s.OK(t, admin, "DELETE", delegatesOf(boss, two.ID), nil)
		s.Refused(t, named, "POST", authorize, used, http.StatusForbidden, "DELEGATOR_REFUSED")
		s.Refused(t, admin, "DELETE", delegatesOf(boss, two.ID), nil, http.StatusNotFound, "NOT_FOUND")
	})
}

// TestTheLastDelegate checks that removing the last delegate does not allow all principals.
func TestTheLastDelegate(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		boss := s.principal(t, "boss", keyserver.RoleExchanger)
		one, two := s.User(t, "one", keyserver.RoleExchanger), s.User(t, "two", keyserver.RoleExchanger)
		first := s.OK(t, admin, "PUT", delegatesOf(boss, one.ID), nil) // before the flag, so that the flag never allows all principals
		if first.Body["delegation"] != false || !strings.Contains(first.Text(t, "detail"), "delegation flag") {
			t.Errorf("named without the flag: %s", first.Raw)
		}
		s.Refused(t, one.Session, "POST", sessions, delegated(boss), http.StatusForbidden, "DELEGATOR_REFUSED")
		s.flags(t, boss, rig.Object{"delegation": true})
		s.Refused(t, two.Session, "POST", sessions, delegated(boss), http.StatusForbidden, "DELEGATOR_REFUSED")
		lent := s.delegate(t, one.Session, boss)

		a := s.OK(t, admin, "DELETE", delegatesOf(boss, one.ID), nil)
		if a.Body["gone"] != true || a.Body["delegation"] != false || a.At(t, "principal", "delegates") != nil || !strings.Contains(a.Text(t, "detail"), "last") {
			t.Errorf("the last one: %s", a.Raw)
		}
		for _, u := range []rig.User{one, two} {
			s.Refused(t, u.Session, "POST", sessions, delegated(boss), http.StatusForbidden, "DELEGATOR_REFUSED")
		}
		s.Refused(t, lent, "GET", "/api/roles", nil, http.StatusForbidden, "DELEGATOR_REFUSED")
		s.flags(t, boss, rig.Object{"delegation": true}) // setting the flag again allows all principals
		s.delegate(t, two.Session, boss)
	})
}

// TestDelegateRefusals checks who can name delegates, and which principals can be delegates.
func TestDelegateRefusals(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		boss, plain := s.principal(t, "boss", keyserver.RoleEncryptor), s.principal(t, "plain")
		group := s.group(t, "g")
		for name, tc := range map[string]struct {
			id, pid string
			status  int
			code    string
		}{
			"NoDelegate":  {boss, "0123456789abcdef", 404, "NOT_FOUND"},
			"NoPrincipal": {"0123456789abcdef", plain, 404, "NOT_FOUND"},
			"Group":       {boss, group, 400, "INVALID_ARGUMENT"},
			"Itself":      {boss, boss, 400, "INVALID_ARGUMENT"},
			"OfAGroup":    {group, plain, 409, "NO_FLAG_WORD"},
			"Own":         {s.self(t, admin), plain, 403, "OWN_ACCOUNT"},
			"Decimal":     {boss, nobodyDecimal, 400, "BAD_REQUEST"},
			"Zero":        {boss, "0000000000000000", 400, "BAD_REQUEST"},
		} {
			t.Run(name, func(t *testing.T) {
				s.Refused(t, admin, "PUT", delegatesOf(tc.id, tc.pid), nil, tc.status, tc.code)
			})
		}
		session, _ := s.opens(t, "boss")
		s.Refused(t, session, "PUT", delegatesOf(boss, plain), nil, http.StatusForbidden, "ACCESS_DENIED")

		// A delegate gets the delegator's operations, so the caller must hold them.
		role := s.OK(t, admin, "POST", "/api/roles", rig.Object{"name": s.name("flags"), "operations": opIDs(keyserver.OpReadPrincipal, keyserver.OpUpdatePrincipalFlags)}).Text(t, "id")
		s.OK(t, admin, "PUT", "/api/principals/"+s.principal(t, "clerk")+"/roles", rig.Object{"roleIds": []string{role}})
		clerk, _ := s.opens(t, "clerk")
		s.Refused(t, clerk, "PUT", delegatesOf(boss, plain), nil, http.StatusForbidden, "ESCALATION")
		s.OK(t, clerk, "PUT", delegatesOf(plain, boss), nil) // plain has no operations

		for i := range 64 {
			delegate := created(t, s.OK(t, admin, "POST", "/api/principals/ldap", rig.Object{"name": s.name(fmt.Sprint("delegate ", i)), "roleIds": []string{}}))
			s.OK(t, admin, "PUT", delegatesOf(boss, delegate), nil)
		}
		s.Refused(t, admin, "PUT", delegatesOf(boss, plain), nil, http.StatusBadRequest, "INVALID_ARGUMENT")
		if rows := s.OK(t, admin, "GET", s.trail("operation=updatePrincipalFlags&reason=escalation"), nil).List(t, "entries"); len(rows) != 1 || rows[0]["object"] != plain+" for "+boss {
			t.Errorf("audited as %v", rows)
		}
	})
}
