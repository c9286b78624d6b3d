package strangers

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestUsesOfThoseWhoHangUp checks clients that close the connection early: each counted use has an audit row, and each
// row has a counted use.
func TestUsesOfThoseWhoHangUp(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		const limit = 400
		guest := s.User(t, "guest", keyserver.RoleEncryptor)
		entry := guest.Entry(s.link, "READ")
		entry["maxUsage"] = limit
		s.OK(t, s.user.Session, "POST", "/api/keys/acl/grant", entry)
		use := rig.Request{Session: guest.Session, Method: "POST", Path: "/api/crypto/hmac", Body: rig.Object{"hiddenLink": s.link, "data": "AAAA"}}

		var wait sync.WaitGroup
		for range 4 {
			wait.Go(func() {
				for range 75 {
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(3*time.Millisecond))
					_, _ = s.Try(ctx, use)
					cancel()
				}
			})
		}
		wait.Wait()
		for used := 0; ; used++ {
			if a := s.Do(t, use); a.Status != http.StatusOK {
				if a.Code() != "ACL_DENIED" || used > limit {
					t.Fatalf("after %d more uses: %s", used, a.Brief())
				}
				break
			}
		}
		rows, cursor := 0, ""
		for more := true; more; more = cursor != "" {
			a := s.OK(t, s.AsAdmin(t), "GET", "/api/audit?limit=1000&operation=hmacData&principalId="+guest.Decimal+cursor, nil)
			for _, row := range a.List(t, "entries") {
				if row["outcome"] == "allowed" {
					rows++
				}
			}
			if cursor = rig.Number(a.Body["next"]); cursor != "" {
				cursor = "&cursor=" + cursor
			}
		}
		if rows != limit {
			t.Errorf("%d uses were counted, and %d rows say so", limit, rows)
		}
	})
}

// aside sends the beginning of a message whose last member would be the key. It never sends the rest.
func (s *site) aside(t *testing.T, session string, bytes int) (answered chan rig.Answer) {
	t.Helper()
	answered = make(chan rig.Answer, 1)
	body := &unending{text: strings.NewReader(`{"data":"` + strings.Repeat("A", bytes)), until: t.Context().Done()}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.Base()+"/api/crypto/hmac", body)
	rig.Must(t, err)
	req.Header.Set("Authorization", "Bearer "+session)
	go func() {
		a, err := s.SendRequest(req)
		if err == nil {
			answered <- a
		}
		close(answered)
	}()
	return answered
}

// unending is a body that stops in the middle.
type unending struct {
	text  *strings.Reader
	until <-chan struct{}
}

func (u *unending) Read(p []byte) (int, error) {
	if u.text.Len() > 0 {
		return u.text.Read(p)
	}
	<-u.until
	return 0, context.Canceled
}

// TestMessagesPutAside checks the space on the volume for messages that arrive before the name of their key. A
// principal without the role gets no space, and no principal gets all of it.
func TestMessagesPutAside(t *testing.T) {
	metrics := rig.FreeAddress(t, "127.0.0.1")
	s := start(t, "--metrics-listen", metrics, "--max-spool-bytes-per-session", "33554432")
	nobody := s.User(t, "nobody")
	if a := <-s.aside(t, nobody.Session, 8<<20); a.Code() != "ACCESS_DENIED" {
		t.Errorf("somebody without a role: %s", a.Brief())
	}
	if held := rig.Metric(t, metrics, "keyserver_http_spooled_bytes"); held != 0 {
		t.Errorf("%v bytes are put aside for somebody without a role", held)
	}
	var asides []chan rig.Answer
	for range 4 { // each has 9 MiB; three fit
		asides = append(asides, s.aside(t, s.user.Session, 12<<20))
	}
	refused := make(chan rig.Answer)
	for _, one := range asides {
		go func() { refused <- <-one }()
	}
	if a := <-refused; a.Code() != "REQUEST_LIMIT" {
		t.Errorf("one too many: %s", a.Brief())
	}
	s.works(t, 10)
	if held := rig.Metric(t, metrics, "keyserver_http_spooled_bytes"); held > 32<<20 {
		t.Errorf("%v bytes are put aside", held)
	}
}

// TestFloodOfLogins checks password guesses without a session. They do not slow down clients with a session, and do not
// prevent logins from an address that has logged in before.
func TestFloodOfLogins(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		guess := []byte(`{"method":"password","name":"honest","password":"a wrong one"}`)
		for range 8 {
			a := connect(t, s, 1<<16)
			for range 120 {
				if _, err := a.ask("POST", "/api/sessions", guess, true, "content-type", "application/json"); err != nil {
					break
				}
			}
			a.arrived()
		}
		s.works(t, 100)
		rows := func() (refused int) {
			for _, row := range s.OK(t, s.AsAdmin(t), "GET", "/api/audit?limit=1000&operation=login", nil).List(t, "entries") {
				if row["outcome"] == "refused" {
					refused++
				}
			}
			return refused
		}
		rig.Soon(t, "wrong guesses and throttled ones have rows", func() bool { return rows() >= 2 })
		if n := rows(); n > 40 {
			t.Errorf("%d rows for refused logins", n)
		}
	})
}
