package contract

import (
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/testserver"
)

// within checks that a field of an answer is a time that lies the given way
// past some moment between the two, of which answers show whole seconds.
func (a answer) within(t testing.TB, field string, past time.Duration, from, to time.Time) {
	t.Helper()
	at, err := time.Parse(time.RFC3339, a.text(t, field))
	if err != nil {
		t.Fatal(err)
	}
	if first, last := from.Add(past).Truncate(time.Second), to.Add(past); at.Before(first) || at.After(last) {
		t.Errorf("%s is %s, want %s to %s", field, at, first, last)
	}
}

// A session says when it ends: after the lifetime that serve was told, and
// after the idle time from its last use.
func TestSessionsSayWhenTheyEnd(t *testing.T) {
	const idle, lifetime = 7 * time.Minute, 50 * time.Minute
	on(t, func(t *testing.T, s *subject) {
		opening := time.Now()
		a := s.ok(t, "", "POST", sessions, object{"method": "password", "name": testserver.AdminName, "password": testserver.AdminPassword})
		opened := time.Now()
		a.within(t, "expiresAt", lifetime, opening, opened)
		a.within(t, "idleExpiresAt", idle, opening, opened)

		session := a.text(t, "sessionId")
		using := time.Now()
		current := s.ok(t, session, "GET", where, nil)
		if current.text(t, "expiresAt") != a.text(t, "expiresAt") {
			t.Errorf("use moved the end from %s to %s", a.text(t, "expiresAt"), current.text(t, "expiresAt"))
		}
		current.within(t, "idleExpiresAt", idle, using, time.Now())
	}, func(c *server.Config) { c.SessionIdle, c.SessionLifetime = idle, lifetime })
}
