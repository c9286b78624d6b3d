package contract

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
)

// ceiling checks what every answer to a ceiling says: how far it reaches, that
// it may be tried again, and when.
func (a answer) ceiling(t testing.TB, code, scope, names string) {
	t.Helper()
	a.is(t, http.StatusServiceUnavailable, code)
	after, err := strconv.Atoi(a.header.Get("Retry-After"))
	if a.body["scope"] != scope || a.body["retryable"] != true || err != nil || after < 1 {
		t.Errorf("%s: Retry-After is %q in %s", code, a.header.Get("Retry-After"), a.raw)
	}
	if detail, _ := a.body["detail"].(string); !strings.Contains(detail, names) {
		t.Errorf("%s: the detail does not name %s: %s", code, names, a.raw)
	}
}

// hold keeps one request under way until the test ends or calls release. Where
// it is answered, because the ceiling is met already, it tries again. It
// speaks over connections of its own, whose end the server notices at once.
func (s *subject) hold(t testing.TB, request string) (release func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: s.Pool(t), MinVersion: tls.VersionTLS13}}
	address, done := s.Address(), make(chan struct{})
	attempt := func() {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		defer stop()
		defer conn.Close()
		if _, err := io.WriteString(conn, request); err != nil {
			return
		}
		answer := bufio.NewReader(conn)
		if line, _ := answer.ReadString('\n'); strings.Contains(line, " 100 ") { // it waits for the body
			_, _ = io.Copy(io.Discard, answer)
		}
	}
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			attempt()
		}
	}()
	release = func() { cancel(); <-done }
	t.Cleanup(release)
	return release
}

// poll is a request that the server itself keeps waiting.
func poll(session, cursor string) string {
	return "GET /api/changes?wait=60&after=" + cursor + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + session + "\r\n\r\n"
}

// half is a request whose body does not arrive, though the server asks for it.
func half(session string) string {
	return "POST " + mac + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + session + "\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n"
}

// held makes a request anew until it meets the ceiling.
func (s *subject) held(t testing.TB, session, method, path string) answer {
	t.Helper()
	var a answer
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if a = s.send(t, session, method, path, nil); a.status == http.StatusServiceUnavailable {
			break
		}
	}
	return a
}

// SESSION_LIMIT of the process; an end makes room at once.
func TestSessionLimit(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		first := s.login1(t)
		s.login1(t)
		s.send(t, "", "POST", sessions, loginBody).ceiling(t, "SESSION_LIMIT", "process", "--max-sessions")
		s.send(t, first, "POST", sessions, scoped("AAAAAQ==")).ceiling(t, "SESSION_LIMIT", "process", "--max-sessions")
		s.ok(t, first, "DELETE", where, nil)
		s.login1(t)
	}, func(c *server.Config) { c.MaxSessions = 2 })
}

// SESSION_LIMIT of a principal, which no other principal feels. Whoever acts
// for another uses up its own room.
func TestSessionLimitOfAPrincipal(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.admin(t)
		boss := s.principal(t, "boss", keyserver.RoleAuditor)
		s.flags(t, boss, object{"delegation": true})
		s.delegate(t, admin, boss)
		scope := s.ok(t, admin, "POST", sessions, scoped("AAAAAQ==")).text(t, "sessionId")
		for _, body := range []object{scoped("AAAAAQ=="), delegated(boss)} {
			s.send(t, admin, "POST", sessions, body).ceiling(t, "SESSION_LIMIT", "session", "--max-sessions-per-principal")
		}
		s.send(t, "", "POST", sessions, loginBody).ceiling(t, "SESSION_LIMIT", "session", "--max-sessions-per-principal")
		for range 3 {
			s.ok(t, "", "POST", sessions, object{"method": "password", "name": "boss", "password": somePassword})
		}
		s.ok(t, scope, "DELETE", where, nil)
		s.login1(t)
	}, func(c *server.Config) { c.MaxSessionsPerPrincipal = 3 })
}

// REQUEST_LIMIT of a session, which no other session feels.
func TestRequestLimit(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		busy, idle := s.login1(t), s.login1(t)
		cursor := number(s.ok(t, busy, "GET", "/api/changes?after=0", nil).body["cursor"].(float64))
		release := s.hold(t, poll(busy, cursor))
		s.held(t, busy, "GET", where).ceiling(t, "REQUEST_LIMIT", "session", "--max-requests-per-session")
		s.ok(t, idle, "GET", where, nil)
		release()
		s.until(t, busy, "GET", where, http.StatusOK, "")
	}, func(c *server.Config) { c.MaxInFlight = 1 })
}

// OVERLOADED: the process has as much at work as it takes on, which concerns
// everybody, except whoever asks whether it is alive.
func TestOverloaded(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		session := s.login1(t)
		release := s.hold(t, half(session))
		a := s.held(t, session, "GET", where)
		a.ceiling(t, "OVERLOADED", "process", "most")
		s.send(t, "", "POST", sessions, loginBody).ceiling(t, "OVERLOADED", "process", "most")
		s.ok(t, "", "GET", "/api/health", nil)
		release()
		s.until(t, session, "GET", where, http.StatusOK, "")

		cursor := number(s.ok(t, session, "GET", "/api/changes?after=0", nil).body["cursor"].(float64))
		release = s.hold(t, poll(session, cursor))
		s.held(t, session, "GET", "/api/changes?wait=0&after="+cursor).ceiling(t, "OVERLOADED", "process", "most")
		s.ok(t, session, "GET", where, nil) // who waits takes no place from who works
		release()
		s.until(t, session, "GET", "/api/changes?wait=0&after="+cursor, http.StatusOK, "")
	}, func(c *server.Config) { c.MaxRequests, c.MaxWaiting = 1, 1 })
}

// LOGIN_THROTTLED: too many failures for a name from an address.
func TestLoginThrottled(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		session := s.login1(t)
		wrong := object{"method": "password", "name": "admin", "password": "wrong password"}
		a := s.send(t, "", "POST", sessions, wrong)
		for range 30 {
			if a.code() != "INVALID_CREDENTIALS" {
				break
			}
			a = s.send(t, "", "POST", sessions, wrong)
		}
		a.is(t, http.StatusTooManyRequests, "LOGIN_THROTTLED")
		if after, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || after < 1 {
			t.Errorf("Retry-After is %q", a.header.Get("Retry-After"))
		}
		s.ok(t, session, "GET", where, nil)
		s.ok(t, session, "POST", sessions, scoped("AAAAAQ==")) // who has a session has shown who it is
	})
}

// PRINCIPAL_DISABLED: live sessions of a principal are refused at once.
func TestPrincipalDisabled(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		session := s.with(t, keyserver.RoleAuditor)
		s.ok(t, session, "GET", "/api/audit", nil)
		s.flags(t, s.self(t, session), object{"disabled": true})
		s.refused(t, session, "GET", "/api/audit", nil, http.StatusForbidden, "PRINCIPAL_DISABLED")
		s.refused(t, session, "POST", sessions, scoped("AAAAAQ=="), http.StatusForbidden, "PRINCIPAL_DISABLED")
		s.flags(t, s.self(t, session), object{"disabled": false})
		s.ok(t, session, "GET", "/api/audit", nil)
	})
}
