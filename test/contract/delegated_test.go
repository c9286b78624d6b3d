package contract

import (
	"crypto/rand"
	"net/http"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

const sessions = "/api/sessions"

// flags sets the named flags of a principal, as the administrator.
func (s *subject) flags(t testing.TB, id string, flags rig.Object) {
	t.Helper()
	s.OK(t, s.AsAdmin(t), "PUT", "/api/principals/"+id+"/flags", flags)
}

const authorize = "/api/keys/authorize"

// readable gives a principal READ on a key of the administrator.
func (s *subject) readable(t testing.TB, link, id string) {
	t.Helper()
	s.OK(t, s.AsAdmin(t), "POST", "/api/keys/acl/grant", rig.Object{
		"ttag": link, "systemId": 1, "principalId": decimal(t, id), "rights": []string{"READ"},
	})
}

func delegated(id string) rig.Object { return rig.Object{"method": "delegated", "principalId": id} }

// delegate opens a delegated session for a delegator.
func (s *subject) delegate(t testing.TB, session, id string) string {
	t.Helper()
	return s.OK(t, session, "POST", sessions, delegated(id)).Text(t, "sessionId")
}

// TestDelegatedLoginRefusals checks which callers can open delegated sessions for which delegators.
func TestDelegatedLoginRefusals(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		admin, exchanger := s.AsAdmin(t), s.with(t, keyserver.RoleExchanger)
		boss, plain := s.principal(t, "boss", keyserver.RoleEncryptor), s.principal(t, "plain", keyserver.RoleEncryptor)
		s.flags(t, boss, rig.Object{"delegation": true})
		for name, body := range map[string]rig.Object{
			"NoPrincipal": {"method": "delegated"}, "Name": {"method": "delegated", "principalId": boss, "name": "boss"},
			"Decimal": delegated(nobodyDecimal), "Objects": {"method": "delegated", "principalId": boss, "objects": []string{"AAAAAQ=="}},
			"BindTo": {"method": "delegated", "principalId": boss, "dpopJkt": newHolder(t).thumbprint(t)},
		} {
			t.Run(name, func(t *testing.T) {
				s.Refused(t, exchanger, "POST", sessions, body, http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		s.Refused(t, "", "POST", sessions, delegated(boss), http.StatusUnauthorized, "SESSION_NOT_FOUND")
		s.Refused(t, s.with(t, keyserver.RoleEncryptor), "POST", sessions, delegated(boss), http.StatusForbidden, "ACCESS_DENIED")
		s.Refused(t, s.with(t, keyserver.RoleAuditor), "POST", sessions, delegated("0123456789abcdef"), http.StatusForbidden, "ACCESS_DENIED")

		// The response does not show whether the principal exists.
		a := s.Refused(t, exchanger, "POST", sessions, delegated(plain), http.StatusForbidden, "DELEGATOR_REFUSED")
		b := s.Refused(t, exchanger, "POST", sessions, delegated("0123456789abcdef"), http.StatusForbidden, "DELEGATOR_REFUSED")
		if a.Text(t, "detail") != b.Text(t, "detail") {
			t.Errorf("%s and %s tell who exists", a.Raw, b.Raw)
		}
		lent := s.delegate(t, admin, boss)
		s.Refused(t, lent, "POST", sessions, delegated(boss), http.StatusForbidden, "ACCESS_DENIED")
		s.flags(t, boss, rig.Object{"disabled": true})
		s.Refused(t, exchanger, "POST", sessions, delegated(boss), http.StatusForbidden, "DELEGATOR_REFUSED")
		rows := s.OK(t, admin, "GET", s.trail("reason=delegatorRefused&operation=delegateLogin"), nil).List(t, "entries")
		if len(rows) != 3 || rows[2]["object"] != boss {
			t.Errorf("the refusals are audited as %v", rows)
		}
	})
}

// TestDelegatedSession checks that a delegated session has the rights of the delegator, names the actor, and is
// audited under both names. It is refused as soon as the delegator forbids delegation or the actor loses the
// right.
func TestDelegatedSession(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, link := s.AsAdmin(t), s.mint(t, "key")
		session := s.with(t, keyserver.RoleExchanger)
		actor := s.self(t, session)
		boss := s.principal(t, "boss", keyserver.RoleExchanger, keyserver.RoleAuditor)
		s.flags(t, boss, rig.Object{"delegation": true})
		a := s.OK(t, session, "POST", sessions, delegated(boss))
		lent := a.Text(t, "sessionId")
		if a.Body["kind"] != "delegated" || a.Text(t, "principal", "id") != boss || a.Text(t, "actor", "id") != actor || a.Body["boundKey"] != nil {
			t.Errorf("got %s", a.Raw)
		}
		s.readable(t, link, boss)
		used := rig.Object{"ttag": link}
		s.OK(t, lent, "POST", authorize, used) // the delegator has the right, the actor does not
		s.Refused(t, session, "POST", authorize, used, http.StatusForbidden, "ACL_DENIED")
		s.Refused(t, lent, "GET", "/api/audit", nil, http.StatusForbidden, "ACCESS_DENIED") // duties cannot be delegated
		s.Refused(t, lent, "POST", "/api/keys", rig.Object{"algorithm": "AES-256"}, http.StatusForbidden, "ACCESS_DENIED")
		if rows := s.OK(t, admin, "GET", s.trail("reason=notLent"), nil).List(t, "entries"); len(rows) != 1 || rows[0]["operation"] != "readAudit" {
			t.Errorf("what is not lent is audited as %v", rows)
		}
		rows := s.OK(t, admin, "GET", s.trail("reason=roleDenied&principalId="+decimal(t, boss)), nil).List(t, "entries")
		if len(rows) != 1 || rows[0]["actorPrincipalId"] != decimal(t, actor) || rows[0]["sessionKind"] != "delegated" {
			t.Errorf("the refusal is audited as %v", rows)
		}
		rows = s.OK(t, admin, "GET", s.trail("operation=login&principalId="+decimal(t, boss)), nil).List(t, "entries")
		if len(rows) != 1 || rows[0]["actorPrincipalId"] != decimal(t, actor) || rows[0]["outcome"] != "allowed" {
			t.Errorf("the login is audited as %v", rows)
		}

		denied := func(code string) {
			t.Helper()
			s.Refused(t, lent, "POST", authorize, used, http.StatusForbidden, code)
		}
		s.flags(t, boss, rig.Object{"delegation": false})
		denied("DELEGATOR_REFUSED")
		s.flags(t, boss, rig.Object{"delegation": true, "disabled": true})
		denied("DELEGATOR_REFUSED")
		gone := func() {
			t.Helper()
			s.Refused(t, lent, "POST", authorize, used, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		}
		s.flags(t, boss, rig.Object{"disabled": false})
		gone() // disabling either principal ends the session
		lent = s.delegate(t, session, boss)
		s.flags(t, actor, rig.Object{"disabled": true})
		denied("PRINCIPAL_DISABLED")
		s.flags(t, actor, rig.Object{"disabled": false})
		gone()
		session, _ = s.opens(t, "holder of "+keyserver.RoleExchanger.Hex())
		lent = s.delegate(t, session, boss)
		s.OK(t, lent, "POST", authorize, used)

		s.OK(t, session, "DELETE", where, nil) // ending a session ends its derived sessions
		s.Refused(t, lent, "POST", authorize, used, http.StatusUnauthorized, "SESSION_NOT_FOUND")
	})
}

// TestDelegatorWithoutCertificate checks that a delegator that is a transport principal needs a valid
// certificate.
func TestDelegatorWithoutCertificate(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, now := s.AsAdmin(t), time.Now()
		ca, err := pki.NewCA(s.name("outside"), now.Add(-time.Hour), rand.Reader)
		rig.Must(t, err)
		digest := s.trustIssuer(t, ca)
		enrolled := func(name string) (enginetest.Agent, string) {
			agent := enginetest.NewAgent(t, ca, s.name(name), now, nil)
			id := s.enroll(t, agent.Certificate.Raw)[0]["id"].(string)
			s.OK(t, admin, "PUT", "/api/principals/"+id+"/roles", rig.Object{"roleIds": hexes(keyserver.RoleAuditor)})
			s.flags(t, id, rig.Object{"delegation": true})
			return agent, id
		}
		revoked, revokedID := enrolled("revoked")
		_, resetID := enrolled("reset")
		one, other := s.delegate(t, admin, revokedID), s.delegate(t, admin, resetID)
		used := rig.Object{"ttag": s.mint(t, "key")}
		for _, id := range []string{revokedID, resetID} {
			s.OK(t, admin, "PUT", "/api/principals/"+id+"/roles", rig.Object{"roleIds": hexes(keyserver.RoleExchanger)})
			s.readable(t, used["ttag"].(string), id)
		}
		s.OK(t, one, "POST", authorize, used)
		s.OK(t, admin, "PUT", "/api/revocation/issuers/"+digest+"/policy", rig.Object{"mode": "required", "maxAgeSeconds": 3600})
		s.Refused(t, one, "POST", authorize, used, http.StatusForbidden, "DELEGATOR_REFUSED") // no evidence
		s.OK(t, admin, "POST", "/api/revocation/crls", rig.Object{"crl": b64(enginetest.NewCRL(t, ca, 1, now, nil, revoked.Certificate))})
		s.Refused(t, one, "POST", authorize, used, http.StatusForbidden, "DELEGATOR_REFUSED")
		s.Refused(t, admin, "POST", sessions, delegated(revokedID), http.StatusForbidden, "DELEGATOR_REFUSED")
		s.OK(t, other, "POST", authorize, used)
		listed := s.listed(t, ca)["certificateId"]
		s.OK(t, admin, "POST", "/api/trusted-cas/remove", rig.Object{"certificateId": listed})
		s.Refused(t, other, "POST", authorize, used, http.StatusForbidden, "DELEGATOR_REFUSED") // its CA is no longer trusted
		s.trustIssuer(t, ca)
		s.OK(t, other, "POST", authorize, used)
		s.OK(t, admin, "POST", "/api/transport-principals/reset", rig.Object{"principalId": resetID})
		s.Refused(t, admin, "POST", sessions, delegated(resetID), http.StatusForbidden, "DELEGATOR_REFUSED")
	})
}

// TestDelegationKeepsDutiesApart checks a split deployment: the Administrator may set the delegation flag, but
// cannot use it to act as a Security Officer.
func TestDelegationKeepsDutiesApart(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		officer := s.self(t, s.with(t, keyserver.RoleSecurityOfficer))
		s.flags(t, officer, rig.Object{"delegation": true})
		s.Refused(t, s.AsAdmin(t), "POST", sessions, delegated(officer), http.StatusForbidden, "ACCESS_DENIED")
	}, split)
}

// TestNobodyAdministersWhileActingForAnother checks that a delegated session of an administrator cannot
// administer any principal, in particular not the actor.
func TestNobodyAdministersWhileActingForAnother(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		other := s.principal(t, "other administrator", keyserver.RoleAdministrator)
		s.flags(t, other, rig.Object{"delegation": true})
		lent := s.delegate(t, s.AsAdmin(t), other)
		for _, id := range []string{other, s.self(t, s.AsAdmin(t)), s.principal(t, "third")} {
			s.Refused(t, lent, "PUT", "/api/principals/"+id+"/roles", rig.Object{"roleIds": []string{}}, http.StatusForbidden, "ACCESS_DENIED")
			s.Refused(t, lent, "PUT", "/api/principals/"+id+"/flags", rig.Object{"disabled": true}, http.StatusForbidden, "ACCESS_DENIED")
		}
	})
}
