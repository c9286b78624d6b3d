package contract

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

const newPassword = "another password than before"

func byPassword(name, password string) rig.Object {
	return rig.Object{"method": "password", "name": name, "password": password}
}

// byPassword returns the login of a principal that the test created.
func (s *subject) byPassword(name, password string) rig.Object {
	return byPassword(s.name(name), password)
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
		ldap := created(t, s.OK(t, admin, "POST", "/api/principals/ldap", rig.Object{"name": s.name("lena"), "roleIds": []string{}}))
		body := rig.Object{"password": newPassword}
		s.Refused(t, "", "PUT", passwordOf(ann), body, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		s.Refused(t, session, "PUT", passwordOf(s.self(t, admin)), body, http.StatusForbidden, "ACCESS_DENIED")
		scope := s.OK(t, session, "POST", sessions, scoped("AAAAAQ==")).Text(t, "sessionId")
		s.Refused(t, scope, "PUT", passwordOf(ann), body, http.StatusForbidden, "OBJECT_NOT_IN_CREDENTIAL_SCOPE")
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
		s.Refused(t, "", "POST", sessions, s.byPassword("ann", somePassword), http.StatusUnauthorized, "INVALID_CREDENTIALS")
		s.OK(t, "", "POST", sessions, s.byPassword("ann", newPassword))
		if a = s.OK(t, admin, "PUT", passwordOf(ann), rig.Object{"password": somePassword}); a.Body["sessionsEnded"] != 1.0 {
			t.Errorf("by the administrator: %s", a.Raw)
		}
		s.OK(t, "", "POST", sessions, s.byPassword("ann", somePassword))
		if rows := s.OK(t, admin, "GET", s.trail("operation=setPassword"), nil).List(t, "entries"); len(rows) < 6 {
			t.Errorf("the trail has %d rows", len(rows))
		}
	})
}

// TestGuessesOfCurrentAreThrottled checks that a client with a stolen session guesses the password no faster than a
// client without a session.
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
		s.Refused(t, "", "POST", sessions, s.byPassword("ann", somePassword), http.StatusTooManyRequests, "LOGIN_THROTTLED")
		s.OK(t, session, "GET", where, nil)
	})
}

// TestSetPasswordGivesNothing checks that a principal needs the operations of another principal to set its password,
// because it could then log in as that principal. In a split deployment, administrator and officer cannot set each
// other's password.
func TestSetPasswordGivesNothing(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		admin, officer := s.AsAdmin(t), s.self(t, s.As(t, s.Officer.Name, s.Officer.Password))
		a := s.Refused(t, admin, "PUT", passwordOf(officer), rig.Object{"password": newPassword}, http.StatusForbidden, "ESCALATION")
		if !strings.Contains(a.Text(t, "detail"), "which the caller does not hold") {
			t.Errorf("the detail names no operation: %s", a.Raw)
		}
		s.OK(t, "", "POST", sessions, byPassword(s.Officer.Name, s.Officer.Password))
		s.OK(t, admin, "PUT", passwordOf(s.principal(t, "user", keyserver.RoleEncryptor)), rig.Object{"password": newPassword})
	}, split)
}

// TestSetPasswordOnReplicas checks that a change at one replica takes effect at the other within a second.
func TestSetPasswordOnReplicas(t *testing.T) {
	one, other := replicas(t)
	ann := one.principal(t, "ann")
	here, _ := one.opens(t, "ann")
	there, _ := other.opens(t, "ann")
	other.OK(t, here, "GET", where, nil)
	one.OK(t, here, "PUT", passwordOf(ann), rig.Object{"password": newPassword, "current": somePassword})
	other.Refused(t, "", "POST", sessions, other.byPassword("ann", somePassword), http.StatusUnauthorized, "INVALID_CREDENTIALS")
	other.OK(t, "", "POST", sessions, other.byPassword("ann", newPassword))
	for _, session := range []string{here, there} {
		other.until(t, session, "GET", where, http.StatusUnauthorized, "SESSION_NOT_FOUND") // within a second
	}
}

// DELETE /api/principals/{id}, clause 9.14.
func TestDeletePrincipal(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		of := func(id string) string { return "/api/principals/" + id }
		ann, heir := s.principal(t, "ann", keyserver.RoleEncryptor), s.principal(t, "heir", keyserver.RoleEncryptor)
		session, _ := s.opens(t, "ann")
		s.registerPeer(t, admin)
		transport := s.peer(t, admin)["transportPrincipalId"].(string)
		number, err := strconv.ParseUint(transport, 10, 64)
		rig.Must(t, err)
		key := s.OK(t, session, "POST", "/api/keys", rig.Object{"algorithm": "HMAC-SHA384"}).Text(t, "ttag")
		s.Refused(t, "", "DELETE", of(ann), nil, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		s.Refused(t, s.with(t, keyserver.RoleSecurityOfficer), "DELETE", of(ann), nil, http.StatusForbidden, "ACCESS_DENIED")
		s.refusals(t, admin, "DELETE", map[string]refusal{
			"Nobody":     {of(nobody), nil, 404, "NOT_FOUND", nobody},
			"Own":        {of(s.self(t, admin)), nil, 403, "OWN_ACCOUNT", "your own"},
			"System":     {of(s.systemDefined(t)), nil, 403, "BUILT_IN_PRINCIPAL", "system"},
			"SoleOwner":  {of(ann), nil, 409, "IN_USE", "heir"},
			"Transport":  {of(values.IDFromUint64(number).Hex()), nil, 409, "IN_USE", "/api/trusted-servers/"},
			"HeirSelf":   {of(ann) + "?heir=" + s.self(t, admin), nil, 403, "OWN_ACCOUNT", "heir"},
			"HeirNobody": {of(ann) + "?heir=" + nobody, nil, 400, "INVALID_ARGUMENT", nobody},
			"HeirItself": {of(ann) + "?heir=" + ann, nil, 400, "BAD_REQUEST", "heir"},
			"HeirZero":   {of(ann) + "?heir=0000000000000000", nil, 400, "BAD_REQUEST", "heir"},
			"HeirWord":   {of(ann) + "?heir=bob", nil, 400, "BAD_REQUEST", "heir"},
		})
		s.OK(t, session, "GET", where, nil)

		a := s.OK(t, admin, "DELETE", of(ann)+"?heir="+heir, nil)
		if a.Body["gone"] != true || a.Body["sessionsEnded"] != 1.0 || a.Body["entriesClosed"] != 1.0 || a.Text(t, "principal", "name") != s.name("ann") {
			t.Errorf("answered %s", a.Raw)
		}
		s.Refused(t, admin, "GET", of(ann), nil, http.StatusNotFound, "NOT_FOUND")
		s.Refused(t, admin, "DELETE", of(ann), nil, http.StatusNotFound, "NOT_FOUND")
		s.Refused(t, session, "GET", where, nil, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		s.Refused(t, "", "POST", sessions, s.byPassword("ann", somePassword), http.StatusUnauthorized, "INVALID_CREDENTIALS")
		inherited, _ := s.opens(t, "heir")
		s.OK(t, inherited, "POST", mac, rig.Object{"hiddenLink": key, "data": ""})
		s.OK(t, inherited, "POST", "/api/keys/acl/grant", rig.Object{"ttag": key, "systemId": 1, "principalId": decimal(t, heir), "rights": []string{"OWNER"}})
		if again := s.principal(t, "ann"); again == ann {
			t.Error("the id was given again")
		}
		rows := s.OK(t, admin, "GET", s.trail("principalId="+decimal(t, ann)), nil).List(t, "entries")
		if len(rows) < 2 {
			t.Errorf("the trail has forgotten ann: %v", rows)
		}
		if rows := s.OK(t, admin, "GET", s.trail("operation=deletePrincipal"), nil).List(t, "entries"); rows[len(rows)-1]["object"] != ann+" to "+heir {
			t.Errorf("the trail says %v", rows[len(rows)-1])
		}
	})
}

// TestDeletedTransportPrincipal checks that a deleted transport principal cannot log in with its certificate,
// on any connection.
func TestDeletedTransportPrincipal(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		ca := peerCA(t, s.name("issuer"))
		s.trustCA(t, s.AsAdmin(t), ca)
		agent := s.agent(t, ca, "agent", keyserver.RoleExchanger)
		over := s.showing(t, agent)
		session := over.login(t)
		id := over.self(t, session)
		s.OK(t, s.AsAdmin(t), "DELETE", "/api/principals/"+id, nil)
		over.Refused(t, session, "GET", where, nil, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		over.Refused(t, "", "POST", sessions, rig.Object{"method": "certificate"}, http.StatusUnauthorized, "INVALID_CREDENTIALS")
	})
}

// TestDeletePrincipalOnReplicas checks that a principal deleted at one replica is also deleted at the other.
func TestDeletePrincipalOnReplicas(t *testing.T) {
	one, other := replicas(t)
	ann := one.principal(t, "ann", keyserver.RoleAuditor)
	session, _ := other.opens(t, "ann")
	other.OK(t, session, "GET", "/api/audit", nil)
	one.OK(t, one.AsAdmin(t), "DELETE", "/api/principals/"+ann, nil)
	other.Refused(t, "", "POST", sessions, other.byPassword("ann", somePassword), http.StatusUnauthorized, "INVALID_CREDENTIALS")
	other.until(t, session, "GET", "/api/audit", http.StatusUnauthorized, "SESSION_NOT_FOUND") // within a second
}

// TestTemplatesAreHandedOver checks that the only owner of a template can add another owner and then remove itself. The
// new owner can change the template, and the previous owner cannot.
func TestTemplatesAreHandedOver(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		first, second := s.with(t, keyserver.RoleSecurityOfficer), s.User(t, "second", keyserver.RoleSecurityOfficer).Session
		members := "/api/acl-templates/" + s.template(t, first, "handed over") + "/members"
		of := func(session string) string { return members + "/1/" + decimal(t, s.self(t, session)) }
		s.Refused(t, first, "DELETE", of(first), nil, http.StatusConflict, "LAST_WRITER")
		s.Refused(t, second, "DELETE", of(first), nil, http.StatusForbidden, "NOT_WRITABLE")
		s.OK(t, first, "POST", members, rig.Object{"systemId": 1, "principalId": decimal(t, s.self(t, second)), "rights": []string{"OWNER"}})
		s.OK(t, first, "DELETE", of(first), nil)
		s.Refused(t, first, "DELETE", of(second), nil, http.StatusForbidden, "NOT_WRITABLE")
		s.Refused(t, second, "DELETE", of(second), nil, http.StatusConflict, "LAST_WRITER")
		s.OK(t, second, "PUT", strings.TrimSuffix(members, "/members"), rig.Object{"name": s.name("renamed")})
		s.OK(t, s.AsAdmin(t), "DELETE", "/api/principals/"+s.self(t, first), nil)
	})
}

// TestBootstrapServiceAccount checks serve --bootstrap-service-account: the first start creates an
// administrator for the tokens of a service account, with the roles of the first administrator.
func TestBootstrapServiceAccount(t *testing.T) {
	const subjectOf = "system:serviceaccount:keys:manager"
	t.Parallel()
	for deployment, roles := range map[string][]any{"Unified": {"Administrator", "Encryptor"}, "Split": {"Administrator"}} {
		t.Run(deployment, func(t *testing.T) {
			i := newTokenIssuer(t)
			ownEmbedded(t, func(t *testing.T, s *subject) {
				for name, token := range map[string]string{
					"AnotherAccount":  i.token(t, "system:serviceaccount:keys:default"),
					"AnotherAudience": i.token(t, subjectOf, func(c rig.Object) { c["aud"] = "https://kubernetes.default.svc" }),
				} {
					t.Run(name, func(t *testing.T) {
						s.Refused(t, "", "POST", sessions, tokenLogin(token), http.StatusUnauthorized, "INVALID_CREDENTIALS")
					})
				}
				a := s.OK(t, "", "POST", sessions, tokenLogin(i.token(t, subjectOf)))
				var held []any
				for _, r := range a.List(t, "roles") {
					held = append(held, r["name"])
				}
				if !slices.Equal(held, roles) || a.Text(t, "principal", "type") != "xauth" {
					t.Errorf("opened %s", a.Raw)
				}
				s.OK(t, a.Text(t, "sessionId"), "GET", "/api/roles", nil)
			}, i.configure, func(c *server.Config) {
				c.BootstrapServiceAccount = "keys:manager"
				if deployment == "Split" {
					divided(c)
				}
			})
		})
	}
}
