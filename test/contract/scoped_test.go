package contract

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
)

func scoped(links ...string) object { return object{"method": "scoped", "objects": links} }

// until makes a request anew until it is answered so.
func (s *subject) until(t testing.TB, session, method, path string, status int, code string) {
	t.Helper()
	var a answer
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if a = s.send(t, session, method, path, nil); a.status == status && a.code() == code {
			return
		}
	}
	t.Fatalf("%s %s: the last answer is %d %s, want %d %s", method, path, a.status, a.raw, status, code)
}

// lifetimeOf is how long a session that was just opened lasts.
func lifetimeOf(t testing.TB, a answer) time.Duration {
	t.Helper()
	end, err := time.Parse(time.RFC3339, a.text(t, "expiresAt"))
	must(t, err)
	date, err := http.ParseTime(a.header.Get("Date"))
	must(t, err)
	if a.text(t, "idleExpiresAt") != a.text(t, "expiresAt") && a.body["kind"] == "scoped" {
		t.Errorf("a scoped credential ends for lack of use: %s", a.raw)
	}
	return end.Sub(date)
}

// What a scoped credential may name.
func TestScopedLoginRefusals(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, link := s.admin(t), s.mint(t, "key")
		many := make([]string, 65)
		for i := range many {
			many[i] = b64([]byte{0, 0, 0, 1, byte(i)})
		}
		with := func(field string, value any) object { return join(scoped(link), object{field: value}) }
		for name, body := range map[string]object{
			"NoObjects": {"method": "scoped"}, "EmptyObjects": scoped(), "TooMany": scoped(many...), "Twice": scoped(link, link),
			"NoTime": with("lifetimeSeconds", 0), "Negative": with("lifetimeSeconds", -1), "Fraction": with("lifetimeSeconds", 1.5),
			"PastALifetime": with("lifetimeSeconds", 8*3600+1), "ShortThumbprint": with("dpopJkt", strings.Repeat("A", 42)),
			"Base64Thumbprint": with("dpopJkt", strings.Repeat("A", 42)+"+"), "StrayBits": with("dpopJkt", strings.Repeat("A", 42)+"B"),
			"Principal": with("principalId", "0123456789abcdef"), "Password": with("password", "x"),
		} {
			t.Run(name, func(t *testing.T) { s.refused(t, admin, "POST", sessions, body, http.StatusBadRequest, "BAD_REQUEST") })
		}
		for name, bad := range badLinks {
			t.Run("Object"+name, func(t *testing.T) {
				body := object{"method": "scoped", "objects": []any{bad}}
				s.refused(t, admin, "POST", sessions, body, http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		s.refused(t, "", "POST", sessions, scoped(link), http.StatusUnauthorized, "SESSION_NOT_FOUND")
	})
}

// A scoped credential works on the keys that it names, as far as its principal
// may, and on nothing else.
func TestScopedCredential(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, inside, outside := s.admin(t), s.mint(t, "inside"), s.mint(t, "outside")
		foreign := b64([]byte{0, 0, 0, 77, 1, 2, 3, 4, 5, 6, 7, 8})
		a := s.ok(t, admin, "POST", sessions, scoped(inside, foreign))
		id := a.text(t, "sessionId")
		if a.body["kind"] != "scoped" || len(a.body["objects"].([]any)) != 2 || a.body["actor"] != nil {
			t.Errorf("got %s", a.raw)
		}
		if d := lifetimeOf(t, a); d < 9*time.Minute || d > 11*time.Minute {
			t.Errorf("it lasts %s", d)
		}
		use := func(link string) object { return object{"hiddenLink": link, "data": ""} }
		s.ok(t, id, "POST", mac, use(inside))
		s.ok(t, id, "POST", "/api/keys/authorize", object{"ttag": inside})
		s.ok(t, id, "POST", "/api/keys/acl/get", object{"ttag": inside})
		s.ok(t, id, "GET", where, nil)
		denied := func(method, path string, body any) {
			t.Helper()
			s.refused(t, id, method, path, body, http.StatusForbidden, "OBJECT_NOT_IN_CREDENTIAL_SCOPE")
		}
		denied("POST", mac, use(outside))
		denied("POST", "/api/keys/authorize", object{"ttag": outside})
		denied("POST", "/api/keys/get", object{"ttag": outside})
		self := object{"ttag": outside, "systemId": 1, "principalId": decimal(t, s.self(t, admin))}
		for _, path := range []string{"/api/keys/acl/get", "/api/keys/acl/grant", "/api/keys/acl/update", "/api/keys/acl/revoke", "/api/keys/export"} {
			body := self
			switch path {
			case "/api/keys/acl/get":
				body = object{"ttag": outside}
			case "/api/keys/acl/grant", "/api/keys/acl/update":
				body = join(self, object{"rights": []string{"OWNER"}})
			}
			denied("POST", path, body)
		}
		denied("POST", "/api/keys", object{"algorithm": "AES-256"})
		denied("GET", "/api/roles", nil)
		denied("POST", "/api/server/version", nil)
		denied("POST", sessions, scoped(inside))
		denied("POST", sessions, delegated(s.self(t, admin)))
		// A foreign key is covered; that the key server knows no such peer is another matter.
		if a := s.send(t, id, "POST", mac, use(foreign)); a.code() == "OBJECT_NOT_IN_CREDENTIAL_SCOPE" || a.status == http.StatusOK {
			t.Errorf("got %d %s", a.status, a.raw)
		}
		s.refused(t, s.ok(t, s.with(t, keyserver.RoleAuditor), "POST", sessions, scoped(inside)).text(t, "sessionId"),
			"POST", mac, use(inside), http.StatusForbidden, "ACCESS_DENIED") // a scope gives no rights
		rows := s.ok(t, admin, "GET", "/api/audit?reason=notInScope", nil).list(t, "entries")
		if len(rows) < 6 || rows[0]["sessionKind"] != "scoped" {
			t.Errorf("the refusals are audited as %v", rows)
		}
		s.ok(t, id, "DELETE", where, nil)
		s.refused(t, id, "POST", mac, use(inside), http.StatusUnauthorized, "SESSION_NOT_FOUND")
	})
}

// Delegation and the end of a session reach what was made from it, however far.
func TestScopedFromDelegated(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		link := s.mint(t, "key")
		session := s.with(t, keyserver.RoleExchanger)
		boss := s.principal(t, "boss", keyserver.RoleEncryptor)
		s.flags(t, boss, object{"delegation": true})
		s.ok(t, s.admin(t), "POST", "/api/keys/acl/grant", object{"ttag": link, "systemId": 1, "principalId": decimal(t, boss), "rights": []string{"READ"}})
		lent := s.delegate(t, session, boss)
		a := s.ok(t, lent, "POST", sessions, scoped(link))
		id := a.text(t, "sessionId")
		if a.text(t, "principal", "id") != boss || a.text(t, "actor", "id") != s.self(t, session) {
			t.Errorf("got %s", a.raw)
		}
		use := object{"hiddenLink": link, "data": ""}
		s.ok(t, id, "POST", mac, use)
		s.flags(t, boss, object{"delegation": false})
		s.refused(t, id, "POST", mac, use, http.StatusForbidden, "DELEGATOR_REFUSED")
		s.refused(t, lent, "POST", sessions, scoped(link), http.StatusForbidden, "DELEGATOR_REFUSED")
		s.flags(t, boss, object{"delegation": true})
		s.ok(t, id, "POST", mac, use)
		s.ok(t, session, "DELETE", where, nil)
		s.refused(t, id, "POST", mac, use, http.StatusUnauthorized, "SESSION_NOT_FOUND")
	})
}

// A fixed lifetime: use does not extend it, idleness does not end it, and it
// does not outlast the session that it was made from.
func TestScopedCredentialExpires(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin, link := s.admin(t), s.mint(t, "key")
		short := s.ok(t, admin, "POST", sessions, join(scoped(link), object{"lifetimeSeconds": 1})).text(t, "sessionId")
		if d := lifetimeOf(t, s.ok(t, admin, "POST", sessions, join(scoped(link), object{"lifetimeSeconds": 60}))); d > time.Minute+time.Second {
			t.Errorf("it outlasts the session that it was made from: %s", d)
		}
		s.until(t, short, "GET", where, http.StatusUnauthorized, "SCOPED_CREDENTIAL_EXPIRED")
		a := s.refused(t, short, "POST", mac, object{"hiddenLink": link, "data": ""}, http.StatusUnauthorized, "SCOPED_CREDENTIAL_EXPIRED")
		if a.body["reauth"] != true || a.header.Get("WWW-Authenticate") == "" {
			t.Errorf("got %v %s", a.header, a.raw)
		}
		s.refused(t, short, "POST", sessions, scoped(link), http.StatusUnauthorized, "SCOPED_CREDENTIAL_EXPIRED")
	}, func(c *server.Config) { c.SessionIdle, c.SessionLifetime = 50*time.Second, time.Minute })
}

// SESSION_EXPIRED: a session that is not used.
func TestSessionExpires(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		session := s.login1(t)
		a := s.send(t, session, "GET", where, nil)
		for deadline := time.Now().Add(time.Minute); a.status == http.StatusOK && time.Now().Before(deadline); {
			time.Sleep(1200 * time.Millisecond) // longer than it may lie unused
			a = s.send(t, session, "GET", where, nil)
		}
		a.is(t, http.StatusUnauthorized, "SESSION_EXPIRED")
		if a.body["reauth"] != true {
			t.Errorf("got %s", a.raw)
		}
	}, func(c *server.Config) { c.SessionIdle = time.Second })
}

// login1 opens a session that no other test knows.
func (s *subject) login1(t testing.TB) string {
	t.Helper()
	return s.ok(t, "", "POST", sessions, loginBody).text(t, "sessionId")
}

// Which key a session that is made from another is bound to.
func TestKeysOfDerivedSessions(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		link := s.mint(t, "key")
		boss := s.principal(t, "boss", keyserver.RoleAuditor)
		s.flags(t, boss, object{"delegation": true})
		browser, caller := newHolder(t), newHolder(t)
		plain := s.login1(t)
		s.bind(t, caller)
		at := s.URL() + sessions
		other := join(scoped(link), object{"dpopJkt": browser.thumbprint(t)})

		// A bound caller proves itself, once, and for this session id.
		bearer := "Bearer " + caller.session
		s.prove(t, bearer, "POST", sessions, scoped(link)).is(t, http.StatusUnauthorized, "PROOF_REQUIRED")
		s.prove(t, bearer, "POST", sessions, scoped(link), browser.proof(t, "POST", at)).is(t, http.StatusUnauthorized, "PROOF_KEY_MISMATCH")
		stranger := *caller
		stranger.session = plain
		s.prove(t, bearer, "POST", sessions, scoped(link), stranger.proof(t, "POST", at)).is(t, http.StatusUnauthorized, "PROOF_TOKEN_MISMATCH")
		caller.jti += 100
		proof := caller.proof(t, "POST", at)
		for name, tc := range map[string]struct {
			body object
			key  *holder
		}{"Scoped": {scoped(link), caller}, "Delegated": {delegated(boss), caller}, "ForTheBrowser": {other, browser}} {
			t.Run(name, func(t *testing.T) {
				s.bound(t, s.prove(t, bearer, "POST", sessions, tc.body, caller.proof(t, "POST", at)), tc.key)
			})
		}
		s.prove(t, bearer, "POST", sessions, scoped(link), proof).is(t, http.StatusOK, "")
		s.prove(t, bearer, "POST", sessions, scoped(link), proof).is(t, http.StatusUnauthorized, "PROOF_REPLAYED")

		// The proof of an unbound caller is of the new session's key.
		bearer = "Bearer " + plain
		s.bound(t, s.prove(t, bearer, "POST", sessions, scoped(link)), nil)
		s.bound(t, s.prove(t, bearer, "POST", sessions, other), browser)
		s.bound(t, s.prove(t, bearer, "POST", sessions, other, browser.proof(t, "POST", at)), browser)
		s.bound(t, s.prove(t, bearer, "POST", sessions, scoped(link), browser.proof(t, "POST", at)), browser)
		s.bound(t, s.prove(t, bearer, "POST", sessions, delegated(boss), browser.proof(t, "POST", at)), browser)
		a := s.prove(t, bearer, "POST", sessions, other, stranger.proof(t, "POST", at))
		a.is(t, http.StatusBadRequest, "BAD_REQUEST")
		if !strings.Contains(a.text(t, "detail"), "dpopJkt") {
			t.Errorf("got %s", a.raw)
		}
	})
}

// bound checks that a new session is bound to the holder's key, nil for none,
// and that it can be used so.
func (s *subject) bound(t *testing.T, a answer, to *holder) {
	t.Helper()
	a.is(t, http.StatusOK, "")
	if a.status != http.StatusOK {
		return
	}
	id := a.text(t, "sessionId")
	if to == nil {
		if a.body["boundKey"] != nil {
			t.Errorf("bound to a key: %s", a.raw)
		}
		s.ok(t, id, "GET", where, nil)
		return
	}
	if a.body["boundKey"] != to.thumbprint(t) {
		t.Errorf("got %s, want it bound to %s", a.raw, to.thumbprint(t))
	}
	user := *to
	user.session, user.jti = id, to.jti+int(time.Now().UnixNano()%1e9)
	s.prove(t, "Bearer "+id, "GET", where, nil).is(t, http.StatusUnauthorized, "PROOF_REQUIRED")
	s.prove(t, "Bearer "+id, "GET", where, nil, user.proof(t, "GET", s.URL()+where)).is(t, http.StatusOK, "")
	if raw, err := base64.RawURLEncoding.DecodeString(id); err != nil || len(raw) != 32 {
		t.Errorf("a session id of %d bytes", len(raw))
	}
}
