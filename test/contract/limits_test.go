package contract

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// ceiling checks the response at a limit: its scope, that the request may be retried, and after which time.
func ceiling(t testing.TB, a rig.Answer, code, scope, names string) {
	t.Helper()
	is(t, a, http.StatusServiceUnavailable, code)
	after, err := strconv.Atoi(a.Header.Get("Retry-After"))
	if a.Body["scope"] != scope || a.Body["retryable"] != true || err != nil || after < 1 {
		t.Errorf("%s: Retry-After is %q in %s", code, a.Header.Get("Retry-After"), a.Raw)
	}
	if detail, _ := a.Body["detail"].(string); !strings.Contains(detail, names) {
		t.Errorf("%s: the detail does not name %s: %s", code, names, a.Raw)
	}
}

// hold keeps one request in progress until the test ends or calls release. If the request is refused because of
// the limit, hold tries again. It uses separate connections, so that the server notices their end immediately.
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
		if line, _ := answer.ReadString('\n'); strings.Contains(line, " 100 ") { // the server waits for the body
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

// poll returns a long poll, which the server delays for a minute.
func poll(session, cursor string) string {
	return "GET /api/changes?wait=60&after=" + cursor + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + session + "\r\n\r\n"
}

// half returns a request whose body never arrives, although the server waits for the body.
func half(session string) string {
	return "POST " + mac + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + session + "\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n"
}

// held repeats a request until it is refused because of the limit.
func (s *subject) held(t testing.TB, session, method, path string) rig.Answer {
	t.Helper()
	var a rig.Answer
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if a = s.Send(t, session, method, path, nil); a.Status == http.StatusServiceUnavailable {
			break
		}
	}
	return a
}

// tight has low limits per principal, per session, and for proofs.
var tight = &serverConfig{options: []testserver.Option{func(c *server.Config) {
	c.MaxSessionsPerPrincipal, c.MaxDerivedSessions, c.MaxProofs = 4, 2, 12
}}}

// TestSessionLimit checks SESSION_LIMIT of the process, and of a principal's share. When a session ends, another one
// can be opened immediately.
func TestSessionLimit(t *testing.T) {
	ownEmbedded(t, func(t *testing.T, s *subject) {
		var first string
		for i, name := range []string{"one", "two", "three"} { // the fourth session is that of the test's administrator
			s.principal(t, name, keyserver.RoleAuditor)
			id := s.OK(t, "", "POST", sessions, rig.Object{"method": "password", "name": name, "password": somePassword}).Text(t, "sessionId")
			if i == 0 {
				first = id
			}
		}
		ceiling(t, s.Send(t, "", "POST", sessions, s.loginBody()), "SESSION_LIMIT", "process", "--max-sessions")
		ceiling(t, s.Send(t, first, "POST", sessions, scoped("AAAAAQ==")), "SESSION_LIMIT", "process", "--max-sessions")
		s.OK(t, first, "DELETE", where, nil)
		ceiling(t, s.Send(t, "", "POST", sessions, s.loginBody()), "SESSION_LIMIT", "session", "a quarter of --max-sessions")
		s.OK(t, "", "POST", sessions, rig.Object{"method": "password", "name": "one", "password": somePassword})
	}, func(c *server.Config) { c.MaxSessions = 4 })
}

// TestSessionLimitOfAPrincipal checks SESSION_LIMIT of a principal, which does not affect other principals.
func TestSessionLimitOfAPrincipal(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		first := s.login1(t)
		s.login1(t)
		s.principal(t, "boss", keyserver.RoleAuditor)
		s.login1(t)
		ceiling(t, s.Send(t, "", "POST", sessions, s.loginBody()), "SESSION_LIMIT", "session", "--max-sessions-per-principal")
		for range 3 {
			s.OK(t, "", "POST", sessions, rig.Object{"method": "password", "name": s.name("boss"), "password": somePassword})
		}
		s.OK(t, first, "DELETE", where, nil)
		s.login1(t)
	}, at(tight)) // one of the four sessions is that of the test's administrator
}

// TestSessionLimitOfASession checks SESSION_LIMIT of the sessions derived from one session. The limit does not
// affect other sessions, even of the same principal.
func TestSessionLimitOfASession(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		boss := s.principal(t, "boss", keyserver.RoleAuditor)
		s.flags(t, boss, rig.Object{"delegation": true})
		s.delegate(t, admin, boss)
		scope := s.OK(t, admin, "POST", sessions, scoped("AAAAAQ==")).Text(t, "sessionId")
		for _, body := range []rig.Object{scoped("AAAAAQ=="), delegated(boss)} {
			for range 5 {
				ceiling(t, s.Send(t, admin, "POST", sessions, body), "SESSION_LIMIT", "session", "--max-derived-sessions")
			}
		}
		var other string
		for range 3 { // derived sessions count only against the limit of their parent session
			other = s.login1(t)
		}
		s.OK(t, other, "POST", sessions, scoped("AAAAAQ=="))
		s.OK(t, scope, "DELETE", where, nil)
		s.OK(t, admin, "POST", sessions, scoped("AAAAAQ=="))
	}, at(tight))
}

// TestRequestLimit checks REQUEST_LIMIT of a session, which does not affect other sessions.
func TestRequestLimit(t *testing.T) {
	ownEmbedded(t, func(t *testing.T, s *subject) {
		busy, idle := s.login1(t), s.login1(t)
		cursor := rig.Number(s.OK(t, busy, "GET", "/api/changes?after=0", nil).Body["cursor"].(float64))
		release := s.hold(t, poll(busy, cursor))
		ceiling(t, s.held(t, busy, "GET", where), "REQUEST_LIMIT", "session", "--max-requests-per-session")
		s.OK(t, idle, "GET", where, nil)
		release()
		s.until(t, busy, "GET", where, http.StatusOK, "")
	}, func(c *server.Config) { c.MaxInFlight = 1 })
}

// TestOverloaded checks OVERLOADED: the process has the maximum number of requests in progress. All clients get this
// error, except for the liveness check.
func TestOverloaded(t *testing.T) {
	ownEmbedded(t, func(t *testing.T, s *subject) {
		session := s.login1(t)
		release := s.hold(t, half(session))
		ceiling(t, s.held(t, session, "POST", mac), "OVERLOADED", "process", "the limit")
		s.OK(t, session, "GET", where, nil) // a request whose body does not arrive takes no place of other requests
		s.OK(t, "", "GET", "/api/health", nil)
		release()
		s.until(t, session, "POST", mac, http.StatusBadRequest, "BAD_REQUEST")

		// Only requests at work take places, and they end soon. With enough concurrent requests, the server refuses
		// some.
		refused := make(chan rig.Answer, 1)
		var wait sync.WaitGroup
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		for range 8 {
			wait.Go(func() {
				for ctx.Err() == nil {
					a, err := s.Try(ctx, rig.Request{Session: session, Method: "GET", Path: "/api/roles"})
					if err == nil && a.Status == http.StatusServiceUnavailable {
						select {
						case refused <- a:
						default:
						}
						stop()
					}
				}
			})
		}
		wait.Wait()
		stop()
		select {
		case a := <-refused:
			ceiling(t, a, "OVERLOADED", "process", "the limit")
		default:
			t.Error("eight at once had one place")
		}
		s.until(t, session, "GET", where, http.StatusOK, "") // abandoned requests release their places

		cursor := rig.Number(s.OK(t, session, "GET", "/api/changes?after=0", nil).Body["cursor"].(float64))
		release = s.hold(t, poll(session, cursor))
		ceiling(t, s.held(t, session, "GET", "/api/changes?wait=0&after="+cursor), "OVERLOADED", "process", "the limit")
		s.OK(t, session, "GET", where, nil) // long polls take no place of working requests
		release()
		s.until(t, session, "GET", "/api/changes?wait=0&after="+cursor, http.StatusOK, "")
	}, func(c *server.Config) { c.MaxRequests, c.MaxWaiting, c.MaxStreams = 1, 1, 1 })
}

// LOGIN_THROTTLED: too many failures for a name from an address.
func TestLoginThrottled(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		session := s.login1(t)
		wrong := rig.Object{"method": "password", "name": s.Administrator.Name, "password": "wrong password"}
		a := s.Send(t, "", "POST", sessions, wrong)
		for range 30 {
			if a.Code() != "INVALID_CREDENTIALS" {
				break
			}
			a = s.Send(t, "", "POST", sessions, wrong)
		}
		is(t, a, http.StatusTooManyRequests, "LOGIN_THROTTLED")
		if after, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || after < 1 {
			t.Errorf("Retry-After is %q", a.Header.Get("Retry-After"))
		}
		s.OK(t, session, "GET", where, nil)
		s.OK(t, session, "POST", sessions, scoped("AAAAAQ==")) // the caller is already authenticated by its session
	})
}

// TestPrincipalDisabled checks PRINCIPAL_DISABLED: the sessions of a principal are refused immediately and
// permanently.
func TestPrincipalDisabled(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		session := s.with(t, keyserver.RoleAuditor)
		s.OK(t, session, "GET", "/api/audit", nil)
		self := s.self(t, session)
		s.flags(t, self, rig.Object{"disabled": true})
		s.Refused(t, session, "GET", "/api/audit", nil, http.StatusForbidden, "PRINCIPAL_DISABLED")
		s.Refused(t, session, "POST", sessions, scoped("AAAAAQ=="), http.StatusForbidden, "PRINCIPAL_DISABLED")
		s.Refused(t, session, "GET", "/api/sessions/current", nil, http.StatusForbidden, "PRINCIPAL_DISABLED")
		s.flags(t, self, rig.Object{"disabled": false})
		s.Refused(t, session, "GET", "/api/audit", nil, http.StatusUnauthorized, "SESSION_NOT_FOUND")
	})
}
