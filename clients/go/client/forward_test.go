package client_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
)

// once is a body that can be read only once.
type once struct {
	from io.Reader
	read bool
}

func (o *once) Read(p []byte) (int, error) {
	o.read = true
	return o.from.Read(p)
}

// A forwarded request is retried only if its complete body can be sent again. The last response is passed on unchanged.
func TestForward(t *testing.T) {
	const long = 1 << 20
	ended := `{"code":"SESSION_NOT_FOUND","detail":"d","reauth":true}`
	for name, tc := range map[string]struct {
		reason string
		first  func(w http.ResponseWriter, r *http.Request) // for the first attempt
		change func(*client.Forwarded)
		calls  int64
		status int
		code   string
		logins int64
	}{
		"SessionEnded": {"nothing was done, and nothing of the body was read",
			func(w http.ResponseWriter, _ *http.Request) { fail(w, 401, ended) }, nil, 2, 200, "", 2},
		"SessionEndedInTheMiddle": {"the body was read, and cannot be read again",
			func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); fail(w, 401, ended) }, nil, 1, 401, "SESSION_NOT_FOUND", 2},
		"Retryable": {"the service says that a retry may help",
			func(w http.ResponseWriter, _ *http.Request) { fail(w, 503, retryable) }, nil, 2, 200, "", 1},
		"Impatient": {"a wait that is longer than the caller's patience is his",
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "5")
				fail(w, 503, retryable)
			}, nil, 1, 503, "OVERLOADED", 1},
		"Counted": {"a use may have been counted",
			func(w http.ResponseWriter, _ *http.Request) {
				fail(w, 503, strings.Replace(retryable, "OVERLOADED", "PEER_UNAVAILABLE", 1))
			},
			func(f *client.Forwarded) { f.Counts = true }, 1, 503, "PEER_UNAVAILABLE", 1},
		"SentElsewhere": {"a redirect is no answer of a key server, whatever its body says",
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "https://elsewhere.example/")
				fail(w, 307, `{"code":"MOVED","detail":"d"}`)
			}, nil, 1, 307, "MOVED", 1},
		"Open": {"no session goes with it",
			func(w http.ResponseWriter, r *http.Request) {
				fail(w, 403, `{"code":"`+r.Header.Get("Authorization")+`NONE","detail":"d"}`)
			},
			func(f *client.Forwarded) { f.WithoutSession = true }, 1, 403, "NONE", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStub(t)
			s.on("POST /api/x", func(w http.ResponseWriter, r *http.Request, n int64) {
				if r.Header.Get("X-Keyserver-For") != "me" || r.URL.RawQuery != "a=%20b" || r.Header.Get("Authorization") == "Bearer theirs" {
					t.Errorf("it came with %v, %s", r.Header, r.URL)
				}
				if n == 1 {
					tc.first(w, r)
					return
				}
				if sent, err := io.ReadAll(r.Body); err != nil || len(sent) != 4+long || !bytes.HasPrefix(sent, []byte("head")) {
					t.Errorf("%d bytes came, %v", len(sent), err)
				}
				w.Header().Set("X-Mark", "kept")
				_, _ = io.WriteString(w, "answer")
			})
			f := client.Forwarded{
				Route: "x", Method: http.MethodPost, Target: "/api/x?a=%20b", Header: http.Header{"X-Keyserver-For": {"me"}, "Authorization": {"Bearer theirs"}},
				Body: []byte("head"), Rest: &once{from: bytes.NewReader(make([]byte, long))}, Length: 4 + long, Timeout: time.Minute, MaxRetryAfter: time.Second,
			}
			if tc.change != nil {
				tc.change(&f)
			}
			if f.WithoutSession {
				delete(f.Header, "Authorization")
			}
			answers := 0
			err := s.client(t).Forward(t.Context(), f, func(resp *http.Response, failure *client.Error) error {
				answers++
				code := ""
				if failure != nil {
					code = failure.Code
				}
				b, err := io.ReadAll(resp.Body)
				text := string(b)
				if err != nil || resp.StatusCode != tc.status || code != tc.code || (code == "") != (text == "answer" && resp.Header.Get("X-Mark") == "kept") || !strings.Contains(text, code) {
					t.Errorf("%s: got %d %s %q, %v", tc.reason, resp.StatusCode, code, text, err)
				}
				return nil
			})
			if err != nil || answers != 1 || s.calls.Load() != tc.calls || s.logins.Load() != tc.logins {
				t.Errorf("%s: %d answers, %d calls, %d logins, %v", tc.reason, answers, s.calls.Load(), s.logins.Load(), err)
			}
		})
	}
}

// If the login fails, Forward returns a LoginError. An error of the function answer is not retried.
func TestForwardFails(t *testing.T) {
	s := newStub(t)
	s.on("GET /api/x", func(w http.ResponseWriter, _ *http.Request, _ int64) { _, _ = io.WriteString(w, "{}") })
	f := client.Forwarded{Route: "x", Method: http.MethodGet, Target: "/api/x", Timeout: time.Minute}
	taken := errors.New("enough")
	if err := s.client(t).Forward(t.Context(), f, func(*http.Response, *client.Error) error { return taken }); !errors.Is(err, taken) || s.calls.Load() != 1 {
		t.Errorf("%d calls, %v", s.calls.Load(), err)
	}
	refusing := newStub(t)
	refusing.mux = http.NewServeMux()
	refusing.Config.Handler = refusing.mux
	refusing.on("POST /api/sessions", func(w http.ResponseWriter, _ *http.Request, _ int64) {
		fail(w, 401, `{"code":"INVALID_CREDENTIALS","detail":"d"}`)
	})
	var noSession *client.LoginError
	err := refusing.client(t).Forward(t.Context(), f, func(*http.Response, *client.Error) error {
		t.Error("the answer to the login is handed on")
		return nil
	})
	if !errors.As(err, &noSession) || !client.IsCode(err, "INVALID_CREDENTIALS") || refusing.calls.Load() != 1 {
		t.Errorf("%d calls, %v", refusing.calls.Load(), err)
	}
}
