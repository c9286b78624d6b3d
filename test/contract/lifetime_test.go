package contract

import (
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// within checks a time in a response: it is the duration past after a time between from and to. Responses have whole
// seconds.
func within(t testing.TB, a rig.Answer, field string, past time.Duration, from, to time.Time) {
	t.Helper()
	at, err := time.Parse(time.RFC3339, a.Text(t, field))
	if err != nil {
		t.Fatal(err)
	}
	if first, last := from.Add(past).Truncate(time.Second), to.Add(past); at.Before(first) || at.After(last) {
		t.Errorf("%s is %s, want %s to %s", field, at, first, last)
	}
}

// TestSessionsSayWhenTheyEnd checks the end times of a session: by the lifetime flag of serve, and by the idle timeout
// after the last use.
func TestSessionsSayWhenTheyEnd(t *testing.T) {
	const idle, lifetime = 7 * time.Minute, 50 * time.Minute
	ownEmbedded(t, func(t *testing.T, s *subject) {
		opening := time.Now()
		a := s.OK(t, "", "POST", sessions, s.loginBody())
		opened := time.Now()
		within(t, a, "expiresAt", lifetime, opening, opened)
		within(t, a, "idleExpiresAt", idle, opening, opened)

		session := a.Text(t, "sessionId")
		using := time.Now()
		current := s.OK(t, session, "GET", where, nil)
		if current.Text(t, "expiresAt") != a.Text(t, "expiresAt") {
			t.Errorf("use moved the end from %s to %s", a.Text(t, "expiresAt"), current.Text(t, "expiresAt"))
		}
		within(t, current, "idleExpiresAt", idle, using, time.Now())
	}, func(c *server.Config) { c.SessionIdle, c.SessionLifetime = idle, lifetime })
}
