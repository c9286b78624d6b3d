package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
)

// Credentials are what a principal logs in with by password.
type Credentials struct{ Name, Password string }

// Site is one key server as its clients see it.
type Site struct {
	// System is its system id.
	System int
	// Base is the URL that paths follow, asked for at each request.
	Base func() string
	HTTP *http.Client
	// Administrator is whom AsAdmin logs in.
	Administrator Credentials
	// Officer is set where duties are apart: who gives what the administrator may
	// not.
	Officer Credentials
	// Inspect, if it is set, is shown every answer that Send and what stands on it
	// get.
	Inspect func(t testing.TB, r *http.Request, a Answer)
	// Log, if it is set, is what the server has printed, for a test that fails.
	Log func() string

	mu       sync.Mutex
	sessions map[string]string
	clients  map[string]*client.Client // that bind their sessions to a key
}

// Request is what a client sends.
type Request struct {
	ID      string // X-Request-Id, by which audit rows name it; the server draws one where it is empty
	Session string // none where it is empty
	Method  string
	Path    string
	Body    any    // nil, a string that is sent as it is, or anything that becomes JSON
	Owner   string // of what the request makes
	// Encoding is the Content-Encoding of the body; none where it is empty.
	Encoding string
}

// Try makes a request of a server that may not be up.
func (s *Site) Try(ctx context.Context, r Request) (Answer, error) {
	_, a, err := s.exchange(ctx, r)
	return a, err
}

// Do makes a request.
func (s *Site) Do(t testing.TB, r Request) Answer {
	t.Helper()
	sent, a, err := s.exchange(context.WithoutCancel(t.Context()), r)
	if err != nil {
		log := ""
		if s.Log != nil {
			log = "\n" + s.Log()
		}
		t.Fatalf("%s %s at %d: %v%s", r.Method, r.Path, s.System, err, log)
	}
	if s.Inspect != nil {
		s.Inspect(t, sent, a)
	}
	return a
}

// Send makes a request with a session.
func (s *Site) Send(t testing.TB, session, method, path string, body any) Answer {
	t.Helper()
	return s.Do(t, Request{Session: session, Method: method, Path: path, Body: body})
}

// OK makes a request that has to succeed.
func (s *Site) OK(t testing.TB, session, method, path string, body any) Answer {
	t.Helper()
	a := s.Send(t, session, method, path, body)
	if a.Status != http.StatusOK {
		t.Fatalf("%s %s at %d: got %d %s", method, path, s.System, a.Status, a.Raw)
	}
	return a
}

// Refused makes a request that has to be refused with that status and code, in
// JSON with a detail.
func (s *Site) Refused(t testing.TB, session, method, path string, body any, status int, code string) Answer {
	t.Helper()
	a := s.Send(t, session, method, path, body)
	if a.Status != status || a.Code() != code {
		t.Errorf("%s %s %s at %d: got %d %s, want %d %s", method, path, Shorten(body), s.System, a.Status, a.Raw, status, code)
	}
	if a.Field("detail") == "" {
		t.Errorf("%s %s at %d: a failure without detail: %s", method, path, s.System, a.Raw)
	}
	return a
}

// Until makes a request anew until it is answered so.
func (s *Site) Until(t testing.TB, r Request, status int, code string) {
	t.Helper()
	Succeeds(t, func() error {
		if a := s.Do(t, r); a.Status != status || a.Code() != code {
			return fmt.Errorf("%s %s: the last answer is %d %s, want %d %s", r.Method, r.Path, a.Status, a.Raw, status, code)
		}
		return nil
	})
}

// LogIn opens a session with a password.
func (s *Site) LogIn(t testing.TB, name, password string) (session string) {
	t.Helper()
	return s.OK(t, "", "POST", "/api/sessions", Object{"method": "password", "name": name, "password": password}).Text(t, "sessionId")
}

// As answers a session of a principal, the same for each call.
func (s *Site) As(t testing.TB, name, password string) (session string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if id, ok := s.sessions[name]; ok {
		return id
	}
	if s.sessions == nil {
		s.sessions = map[string]string{}
	}
	s.sessions[name] = s.LogIn(t, name, password)
	return s.sessions[name]
}

// AsAdmin answers a session of the first administrator.
func (s *Site) AsAdmin(t testing.TB) (session string) {
	t.Helper()
	return s.As(t, s.Administrator.Name, s.Administrator.Password)
}

// Knows reports whether As has logged somebody in.
func (s *Site) Knows(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.sessions[name]
	return ok
}

// Forget drops what As has handed out: the sessions are over.
func (s *Site) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.sessions)
}

// Over is the same server through another client.
func (s *Site) Over(c *http.Client) *Site {
	return &Site{System: s.System, Base: s.Base, HTTP: c, Administrator: s.Administrator, Officer: s.Officer, Inspect: s.Inspect, Log: s.Log}
}

// Changes reads the change feed behind a cursor to its end, and returns the
// cursor there. Nothing or 0 is the start.
func (s *Site) Changes(t testing.TB, session, after string) (changes []Object, cursor string) {
	t.Helper()
	for cursor = after; ; {
		a := s.OK(t, session, "GET", "/api/changes?wait=0&after="+cursor, nil)
		page := a.List(t, "changes")
		changes, cursor = append(changes, page...), Number(a.Body["cursor"])
		if len(page) == 0 {
			return changes, cursor
		}
	}
}

// Changed returns kind and action of each change behind a cursor, in the order of the feed: of all
// objects, or of those with one of the ids. Sessions are left out: they begin and end by themselves.
func (s *Site) Changed(t testing.TB, session, after string, ids ...any) (changed []string) {
	t.Helper()
	changes, _ := s.Changes(t, session, after)
	for _, c := range changes {
		if c["kind"] != "session" && (len(ids) == 0 || slices.Contains(ids, c["id"])) {
			changed = append(changed, fmt.Sprintf("%v %v", c["kind"], c["action"]))
		}
	}
	return changed
}

// Rows are those of the audit trail with a request id.
func (s *Site) Rows(t testing.TB, requestID string) []Object {
	t.Helper()
	var found []Object
	reader := s.Administrator
	if s.Officer.Name != "" {
		reader = s.Officer
	}
	for query := "?limit=1000"; ; {
		a := s.OK(t, s.As(t, reader.Name, reader.Password), "GET", "/api/audit"+query, nil)
		for _, row := range a.List(t, "entries") {
			if row["requestId"] == requestID {
				found = append(found, row)
			}
		}
		next := Number(a.Body["next"])
		if next == "" {
			return found
		}
		query = "?limit=1000&cursor=" + next
	}
}

// Trail spells rows of the audit trail: operation, outcome, and the reason where
// there is one.
func Trail(rows []Object) string {
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = fmt.Sprintf("%v %v", r["operation"], r["outcome"])
		if reason, _ := r["reason"].(string); reason != "" {
			out[i] += " " + reason
		}
	}
	return fmt.Sprintf("%q", out)
}

func (s *Site) exchange(ctx context.Context, r Request) (*http.Request, Answer, error) {
	var content io.Reader
	switch b := r.Body.(type) {
	case nil:
	case string:
		content = bytes.NewReader([]byte(b))
	default:
		encoded, err := json.Marshal(b)
		if err != nil {
			return nil, Answer{}, err
		}
		content = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, s.Base()+r.Path, content)
	if err != nil {
		return nil, Answer{}, err
	}
	if r.Session != "" {
		req.Header.Set("Authorization", "Bearer "+r.Session)
	}
	if r.ID != "" {
		req.Header.Set("X-Request-Id", r.ID)
	}
	if r.Owner != "" {
		req.Header.Set("X-Keyserver-Owner", r.Owner)
	}
	if r.Encoding != "" {
		req.Header.Set("Content-Encoding", r.Encoding)
	}
	a, err := s.Carry(req)
	return req, a, err
}

// Carry sends a request that a test has made itself.
func (s *Site) Carry(req *http.Request) (Answer, error) {
	resp, err := s.HTTP.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	return Read(resp)
}

// plain are the media types of answers that are no JSON.
var plain = []string{"text/plain; charset=utf-8", "application/octet-stream"}

// Read takes an answer off a response. An error says that it is no JSON object.
func Read(resp *http.Response) (Answer, error) {
	a := Answer{Status: resp.StatusCode, Header: resp.Header, RequestID: resp.Header.Get("X-Request-Id")}
	var err error
	if a.Raw, err = io.ReadAll(resp.Body); err != nil {
		return a, err
	}
	if a.Status == http.StatusOK && slices.Contains(plain, a.Header.Get("Content-Type")) {
		return a, nil
	}
	if err := json.Unmarshal(a.Raw, &a.Body); err != nil {
		return a, fmt.Errorf("answered %s with something else than a JSON object: %s", strconv.Itoa(a.Status), a.Raw)
	}
	return a, nil
}
