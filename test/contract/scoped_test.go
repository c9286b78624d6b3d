package contract

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

func scoped(links ...string) rig.Object { return rig.Object{"method": "scoped", "objects": links} }

// until repeats a request until the response has this status and code.
func (s *subject) until(t testing.TB, session, method, path string, status int, code string) {
	t.Helper()
	s.Until(t, rig.Request{Session: session, Method: method, Path: path}, status, code)
}

// lifetimeOf returns the lifetime of a new session.
func lifetimeOf(t testing.TB, a rig.Answer) time.Duration {
	t.Helper()
	end, err := time.Parse(time.RFC3339, a.Text(t, "expiresAt"))
	rig.Must(t, err)
	date, err := http.ParseTime(a.Header.Get("Date"))
	rig.Must(t, err)
	if a.Text(t, "idleExpiresAt") != a.Text(t, "expiresAt") && a.Body["kind"] == "scoped" {
		t.Errorf("a scoped credential ends for lack of use: %s", a.Raw)
	}
	return end.Sub(date)
}

// TestScopedLoginRefusals checks which keys a scoped credential may name.
func TestScopedLoginRefusals(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		admin, link := s.AsAdmin(t), s.mint(t, "key")
		many := make([]string, 65)
		for i := range many {
			many[i] = b64([]byte{0, 0, 0, 1, byte(i)})
		}
		with := func(field string, value any) rig.Object { return join(scoped(link), rig.Object{field: value}) }
		for name, body := range map[string]rig.Object{
			"NoObjects": {"method": "scoped"}, "EmptyObjects": scoped(), "TooMany": scoped(many...), "Twice": scoped(link, link),
			"NoTime": with("lifetimeSeconds", 0), "Negative": with("lifetimeSeconds", -1), "Fraction": with("lifetimeSeconds", 1.5),
			"PastALifetime": with("lifetimeSeconds", 8*3600+1), "ShortThumbprint": with("dpopJkt", strings.Repeat("A", 42)),
			"Base64Thumbprint": with("dpopJkt", strings.Repeat("A", 42)+"+"), "StrayBits": with("dpopJkt", strings.Repeat("A", 42)+"B"),
			"UnknownOperation": with("operations", []string{"hmacdata"}), "NoOperation": with("operations", []string{}),
			"Export": with("operations", []string{"hmacData", "exportKey"}), "Session": with("operations", []string{"delegateLogin"}),
			"OperationTwice": with("operations", []string{"hmacData", "hmacData"}), "GrantsNothing": with("operations", []string{"amendACL"}),
			"GrantsWithout": with("mayGrant", []string{"READ"}),
			"GrantsOwner":   join(with("operations", []string{"amendACL"}), rig.Object{"mayGrant": []string{"OWNER"}}),
			"Principal":     with("principalId", "0123456789abcdef"), "Password": with("password", "x"),
		} {
			t.Run(name, func(t *testing.T) { s.Refused(t, admin, "POST", sessions, body, http.StatusBadRequest, "BAD_REQUEST") })
		}
		for name, bad := range badLinks {
			t.Run("Object"+name, func(t *testing.T) {
				body := rig.Object{"method": "scoped", "objects": []any{bad}}
				s.Refused(t, admin, "POST", sessions, body, http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		s.Refused(t, "", "POST", sessions, scoped(link), http.StatusUnauthorized, "SESSION_NOT_FOUND")
	})
}

// TestScopedCredential checks that a scoped credential works only on the named keys, with the rights of its
// principal.
func TestScopedCredential(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, inside, outside := s.AsAdmin(t), s.mint(t, "inside"), s.mint(t, "outside")
		foreign := b64([]byte{0, 0, 0, 77, 1, 2, 3, 4, 5, 6, 7, 8})
		a := s.OK(t, admin, "POST", sessions, scoped(inside, foreign))
		id := a.Text(t, "sessionId")
		if a.Body["kind"] != "scoped" || len(a.Body["objects"].([]any)) != 2 || a.Body["actor"] != nil {
			t.Errorf("got %s", a.Raw)
		}
		if d := lifetimeOf(t, a); d < 9*time.Minute || d > 11*time.Minute {
			t.Errorf("it lasts %s", d)
		}
		use := func(link string) rig.Object { return rig.Object{"hiddenLink": link, "data": ""} }
		s.OK(t, id, "POST", mac, use(inside))
		s.OK(t, id, "POST", "/api/keys/authorize", rig.Object{"ttag": inside})
		s.OK(t, id, "POST", "/api/keys/acl/get", rig.Object{"ttag": inside})
		s.OK(t, id, "GET", where, nil)
		denied := func(method, path string, body any) {
			t.Helper()
			s.Refused(t, id, method, path, body, http.StatusForbidden, "OBJECT_NOT_IN_CREDENTIAL_SCOPE")
		}
		denied("POST", mac, use(outside))
		denied("POST", "/api/keys/authorize", rig.Object{"ttag": outside})
		denied("POST", "/api/keys/get", rig.Object{"ttag": outside})
		self := rig.Object{"ttag": outside, "systemId": 1, "principalId": decimal(t, s.self(t, admin))}
		for _, path := range []string{"/api/keys/acl/get", "/api/keys/acl/grant", "/api/keys/acl/update", "/api/keys/acl/revoke", "/api/keys/export"} {
			body := self
			switch path {
			case "/api/keys/acl/get":
				body = rig.Object{"ttag": outside}
			case "/api/keys/acl/grant", "/api/keys/acl/update":
				body = join(self, rig.Object{"rights": []string{"OWNER"}})
			}
			denied("POST", path, body)
		}
		denied("POST", "/api/keys", rig.Object{"algorithm": "AES-256"})
		denied("GET", "/api/roles", nil)
		denied("POST", "/api/server/version", nil)
		denied("POST", sessions, scoped(inside))
		denied("POST", sessions, delegated(s.self(t, admin)))
		// The key of the peer is in the scope. The request fails later, because the server does not know the peer.
		if a := s.Send(t, id, "POST", mac, use(foreign)); a.Code() == "OBJECT_NOT_IN_CREDENTIAL_SCOPE" || a.Status == http.StatusOK {
			t.Errorf("got %d %s", a.Status, a.Raw)
		}
		s.Refused(t, s.OK(t, s.with(t, keyserver.RoleAuditor), "POST", sessions, scoped(inside)).Text(t, "sessionId"),
			"POST", mac, use(inside), http.StatusForbidden, "ACCESS_DENIED") // a scope does not add rights
		rows := s.OK(t, admin, "GET", s.trail("reason=notInScope"), nil).List(t, "entries")
		if len(rows) < 6 || rows[0]["sessionKind"] != "scoped" {
			t.Errorf("the refusals are audited as %v", rows)
		}
		s.OK(t, id, "DELETE", where, nil)
		s.Refused(t, id, "POST", mac, use(inside), http.StatusUnauthorized, "SESSION_NOT_FOUND")
	})
}

// TestOperationsOfAScopedCredential checks the operations of a scoped credential of an owner. If it is stolen, the
// thief cannot become an owner and cannot export the key.
func TestOperationsOfAScopedCredential(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, link := s.AsAdmin(t), s.mint(t, "key")
		thief, friend := s.principal(t, "thief"), s.principal(t, "friend")
		entry := func(of string, rights ...string) rig.Object {
			return rig.Object{"ttag": link, "systemId": 1, "principalId": decimal(t, of), "rights": rights}
		}
		beyond := func(session, path string, body any) {
			t.Helper()
			s.Refused(t, session, "POST", path, body, http.StatusForbidden, "OBJECT_NOT_IN_CREDENTIAL_SCOPE")
		}
		plain := s.OK(t, admin, "POST", sessions, scoped(link))
		if got := plain.Body["operations"]; len(got.([]any)) != 4 || plain.Body["mayGrant"] != nil {
			t.Errorf("got %s", plain.Raw)
		}
		id := plain.Text(t, "sessionId")
		beyond(id, "/api/keys/acl/grant", entry(thief, "OWNER"))
		beyond(id, "/api/keys/acl/grant", entry(thief, "READ"))
		beyond(id, "/api/keys/acl/revoke", rig.Object{"ttag": link, "systemId": 1, "principalId": decimal(t, s.self(t, admin))})
		beyond(id, "/api/keys/export", rig.Object{"ttag": link, "systemId": 1, "principalId": decimal(t, thief)})

		giving := s.OK(t, admin, "POST", sessions, join(scoped(link), rig.Object{"operations": []string{"readACL", "amendACL"}, "mayGrant": []string{"READ"}})).Text(t, "sessionId")
		beyond(giving, mac, rig.Object{"hiddenLink": link, "data": ""})
		beyond(giving, "/api/keys/acl/grant", entry(thief, "OWNER"))
		beyond(giving, "/api/keys/acl/grant", entry(thief, "WRITE"))
		beyond(giving, "/api/keys/acl/update", entry(s.self(t, admin), "READ")) // an entry of an owner
		s.OK(t, giving, "POST", "/api/keys/acl/grant", entry(friend, "READ"))
		s.OK(t, giving, "POST", "/api/keys/acl/revoke", rig.Object{"ttag": link, "systemId": 1, "principalId": decimal(t, friend)})

		s.Stop(t)
		s.Restart(t) // the scope is stored in the database
		s.DropSessions()
		beyond(giving, "/api/keys/acl/grant", entry(thief, "OWNER"))
		s.OK(t, giving, "POST", "/api/keys/acl/grant", entry(friend, "READ"))
		if a := s.OK(t, giving, "GET", where, nil); len(a.Body["operations"].([]any)) != 2 || a.Body["mayGrant"] != 1.0 {
			t.Errorf("got %s", a.Raw)
		}
	}, alone)
}

// TestScopedFromDelegated checks that all derived sessions end when the delegation or the parent session ends.
func TestScopedFromDelegated(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		link := s.mint(t, "key")
		session := s.with(t, keyserver.RoleExchanger)
		boss := s.principal(t, "boss", keyserver.RoleEncryptor)
		s.flags(t, boss, rig.Object{"delegation": true})
		s.OK(t, s.AsAdmin(t), "POST", "/api/keys/acl/grant", rig.Object{"ttag": link, "systemId": 1, "principalId": decimal(t, boss), "rights": []string{"READ"}})
		lent := s.delegate(t, session, boss)
		a := s.OK(t, lent, "POST", sessions, scoped(link))
		id := a.Text(t, "sessionId")
		if a.Text(t, "principal", "id") != boss || a.Text(t, "actor", "id") != s.self(t, session) {
			t.Errorf("got %s", a.Raw)
		}
		use := rig.Object{"hiddenLink": link, "data": ""}
		s.OK(t, id, "POST", mac, use)
		s.flags(t, boss, rig.Object{"delegation": false})
		s.Refused(t, id, "POST", mac, use, http.StatusForbidden, "DELEGATOR_REFUSED")
		s.Refused(t, lent, "POST", sessions, scoped(link), http.StatusForbidden, "DELEGATOR_REFUSED")
		s.flags(t, boss, rig.Object{"delegation": true})
		s.OK(t, id, "POST", mac, use)
		s.OK(t, session, "DELETE", where, nil)
		s.Refused(t, id, "POST", mac, use, http.StatusUnauthorized, "SESSION_NOT_FOUND")
	})
}

// TestScopedCredentialExpires checks a fixed lifetime: uses do not extend it, and idleness does not end it. It
// never exceeds the parent session.
func TestScopedCredentialExpires(t *testing.T) {
	ownEmbedded(t, func(t *testing.T, s *subject) {
		admin, link := s.AsAdmin(t), s.mint(t, "key")
		short := s.OK(t, admin, "POST", sessions, join(scoped(link), rig.Object{"lifetimeSeconds": 1})).Text(t, "sessionId")
		if d := lifetimeOf(t, s.OK(t, admin, "POST", sessions, join(scoped(link), rig.Object{"lifetimeSeconds": 60}))); d > time.Minute+time.Second {
			t.Errorf("it outlasts the session that it was made from: %s", d)
		}
		s.until(t, short, "GET", where, http.StatusUnauthorized, "SCOPED_CREDENTIAL_EXPIRED")
		a := s.Refused(t, short, "POST", mac, rig.Object{"hiddenLink": link, "data": ""}, http.StatusUnauthorized, "SCOPED_CREDENTIAL_EXPIRED")
		if a.Body["reauth"] != true || a.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("got %v %s", a.Header, a.Raw)
		}
		s.Refused(t, short, "POST", sessions, scoped(link), http.StatusUnauthorized, "SCOPED_CREDENTIAL_EXPIRED")
	}, func(c *server.Config) { c.SessionIdle, c.SessionLifetime = 50*time.Second, time.Minute })
}

// TestSessionExpires checks SESSION_EXPIRED for a session that is not used.
func TestSessionExpires(t *testing.T) {
	ownEmbedded(t, func(t *testing.T, s *subject) {
		session := s.login1(t)
		a := s.Send(t, session, "GET", where, nil)
		for deadline := time.Now().Add(time.Minute); a.Status == http.StatusOK && time.Now().Before(deadline); {
			time.Sleep(1200 * time.Millisecond) // longer than the idle timeout
			a = s.Send(t, session, "GET", where, nil)
		}
		is(t, a, http.StatusUnauthorized, "SESSION_EXPIRED")
		if a.Body["reauth"] != true {
			t.Errorf("got %s", a.Raw)
		}
	}, func(c *server.Config) { c.SessionIdle = time.Second })
}

// login1 opens a session that no other test uses.
func (s *subject) login1(t testing.TB) string {
	t.Helper()
	return s.OK(t, "", "POST", sessions, s.loginBody()).Text(t, "sessionId")
}

// TestKeysOfDerivedSessions checks the key that a derived session is bound to.
func TestKeysOfDerivedSessions(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		link := s.mint(t, "key")
		boss := s.principal(t, "boss", keyserver.RoleAuditor)
		s.flags(t, boss, rig.Object{"delegation": true})
		browser, caller := newHolder(t), newHolder(t)
		plain := s.login1(t)
		s.bind(t, caller)
		at := s.URL() + sessions
		other := join(scoped(link), rig.Object{"dpopJkt": browser.thumbprint(t)})

		// A bound caller needs one proof, by its own key and for this session id.
		bearer := "Bearer " + caller.session
		is(t, s.prove(t, bearer, "POST", sessions, scoped(link)), http.StatusUnauthorized, "PROOF_REQUIRED")
		is(t, s.prove(t, bearer, "POST", sessions, scoped(link), browser.proof(t, "POST", at)), http.StatusUnauthorized, "PROOF_KEY_MISMATCH")
		stranger := *caller
		stranger.session = plain
		is(t, s.prove(t, bearer, "POST", sessions, scoped(link), stranger.proof(t, "POST", at)), http.StatusUnauthorized, "PROOF_TOKEN_MISMATCH")
		caller.jti += 100
		proof := caller.proof(t, "POST", at)
		for name, tc := range map[string]struct {
			body rig.Object
			key  *holder
		}{"Scoped": {scoped(link), caller}, "Delegated": {delegated(boss), caller}, "ForTheBrowser": {other, browser}} {
			t.Run(name, func(t *testing.T) {
				s.bound(t, s.prove(t, bearer, "POST", sessions, tc.body, caller.proof(t, "POST", at)), tc.key)
			})
		}
		is(t, s.prove(t, bearer, "POST", sessions, scoped(link), proof), http.StatusOK, "")
		is(t, s.prove(t, bearer, "POST", sessions, scoped(link), proof), http.StatusUnauthorized, "PROOF_REPLAYED")

		// For an unbound caller, the proof is by the key of the new session.
		bearer = "Bearer " + plain
		s.bound(t, s.prove(t, bearer, "POST", sessions, scoped(link)), nil)
		s.bound(t, s.prove(t, bearer, "POST", sessions, other), browser)
		s.bound(t, s.prove(t, bearer, "POST", sessions, other, browser.proof(t, "POST", at)), browser)
		s.bound(t, s.prove(t, bearer, "POST", sessions, scoped(link), browser.proof(t, "POST", at)), browser)
		s.bound(t, s.prove(t, bearer, "POST", sessions, delegated(boss), browser.proof(t, "POST", at)), browser)
		a := s.prove(t, bearer, "POST", sessions, other, stranger.proof(t, "POST", at))
		is(t, a, http.StatusBadRequest, "BAD_REQUEST")
		if !strings.Contains(a.Text(t, "detail"), "dpopJkt") {
			t.Errorf("got %s", a.Raw)
		}
	})
}

// bound checks that a new session works, and is bound to the holder's key. If the holder is nil, the session must be
// unbound.
func (s *subject) bound(t *testing.T, a rig.Answer, to *holder) {
	t.Helper()
	is(t, a, http.StatusOK, "")
	if a.Status != http.StatusOK {
		return
	}
	id := a.Text(t, "sessionId")
	if to == nil {
		if a.Body["boundKey"] != nil {
			t.Errorf("bound to a key: %s", a.Raw)
		}
		s.OK(t, id, "GET", where, nil)
		return
	}
	if a.Body["boundKey"] != to.thumbprint(t) {
		t.Errorf("got %s, want it bound to %s", a.Raw, to.thumbprint(t))
	}
	user := *to
	user.session, user.jti = id, to.jti+int(time.Now().UnixNano()%1e9)
	is(t, s.prove(t, "Bearer "+id, "GET", where, nil), http.StatusUnauthorized, "PROOF_REQUIRED")
	is(t, s.prove(t, "Bearer "+id, "GET", where, nil, user.proof(t, "GET", s.URL()+where)), http.StatusOK, "")
	if raw, err := base64.RawURLEncoding.DecodeString(id); err != nil || len(raw) != 32 {
		t.Errorf("a session id of %d bytes", len(raw))
	}
}
