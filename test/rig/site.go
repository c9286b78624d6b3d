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

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
)

// Credentials are the name and password of a principal.
type Credentials struct{ Name, Password string }

// Site is a client configuration for one key server.
type Site struct {
	// System is the system id of the key server.
	System int
	// Base returns the base URL. It is called for each request.
	Base func() string
	HTTP *http.Client
	// Administrator has the credentials for AsAdmin.
	Administrator Credentials
	// Officer is set in a split deployment. It grants rights that the administrator may not grant.
	Officer Credentials
	// Inspect, if it is set, gets every answer of Do and of the methods that call Do.
	Inspect func(t testing.TB, r *http.Request, a Answer)
	// Log, if it is set, returns the log of the server. A failing test prints it.
	Log func() string

	mu       sync.Mutex
	sessions map[string]string
	clients  map[string]*client.Client // clients that bind their sessions to a key
}

// Request is an HTTP request of a client.
type Request struct {
	ID      string // X-Request-Id, which audit rows contain; empty: the server chooses one
	Session string // empty: none
	Method  string
	Path    string
	Body    any    // nil, a string that is sent unchanged, or a value that is encoded as JSON
	Owner   string // owner mark of the object that the request creates
	// Encoding is the Content-Encoding of the body; empty: none.
	Encoding string
}

// Try sends a request. It returns an error if there is no answer.
func (s *Site) Try(ctx context.Context, r Request) (Answer, error) {
	_, a, err := s.exchange(ctx, r)
	return a, err
}

// Do sends a request. It fails the test if it gets no answer.
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

// Send sends a request with a session.
func (s *Site) Send(t testing.TB, session, method, path string, body any) Answer {
	t.Helper()
	return s.Do(t, Request{Session: session, Method: method, Path: path, Body: body})
}

// OK sends a request that must succeed.
func (s *Site) OK(t testing.TB, session, method, path string, body any) Answer {
	t.Helper()
	a := s.Send(t, session, method, path, body)
	if a.Status != http.StatusOK {
		t.Fatalf("%s %s at %d: got %d %s", method, path, s.System, a.Status, a.Raw)
	}
	return a
}

// Refused sends a request that must fail with this status and code, as JSON with a detail.
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

// Until repeats a request until the answer has this status and code.
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

// As returns a session of a principal. Each call returns the same session.
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

// AsAdmin returns a session of the first administrator.
func (s *Site) AsAdmin(t testing.TB) (session string) {
	t.Helper()
	return s.As(t, s.Administrator.Name, s.Administrator.Password)
}

// HasSession reports whether As has a session of this name.
func (s *Site) HasSession(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.sessions[name]
	return ok
}

// DropSessions forgets the sessions of As. Call it after they have ended.
func (s *Site) DropSessions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.sessions)
}

// WithHTTPClient returns a Site for the same server with another HTTP client.
func (s *Site) WithHTTPClient(c *http.Client) *Site {
	return &Site{System: s.System, Base: s.Base, HTTP: c, Administrator: s.Administrator, Officer: s.Officer, Inspect: s.Inspect, Log: s.Log}
}

// Changes reads the change feed from a cursor to its end, and returns the changes and the last cursor. The cursor "" or
// "0" is the start.
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

// Changed returns kind and action of each change after a cursor, in the order of the feed. If ids are given, it returns
// only changes of these objects. It omits sessions, because sessions also begin and end without a request of the test.
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

// Rows returns the audit rows with a request id.
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

// FormatRows formats audit rows: operation, outcome, and the reason if there is one.
func FormatRows(rows []Object) string {
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
	a, err := s.SendRequest(req)
	return req, a, err
}

// SendRequest sends a prepared request and reads its answer.
func (s *Site) SendRequest(req *http.Request) (Answer, error) {
	resp, err := s.HTTP.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	return Read(resp)
}

// plain has the media types of answers that are not JSON.
var plain = []string{"text/plain; charset=utf-8", "application/octet-stream"}

// Read converts a response to an Answer. The body must be a JSON object or of a plain type.
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
