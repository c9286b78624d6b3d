package client

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/singleflight"
)

// ErrNoCredentials is the error of a call that needs a session if the client
// has no credentials.
var ErrNoCredentials = errors.New("the call needs a session, but the client has no credentials; set Options.Credentials")

// session keeps one session id and opens a new session before the old one ends. Concurrent callers without a session
// share one login: a hundred reconcilers that start together must not cause a hundred logins.
type session struct {
	credentials Credentials
	now         func() time.Time
	open        func(context.Context, Credentials) (ticket, error)

	logins singleflight.Group[struct{}]
	mu     sync.Mutex
	held   ticket
}

// ticket is a session id with its time limits by the local clock.
type ticket struct {
	token string
	until time.Time     // end of the absolute lifetime, minus a margin
	idle  time.Duration // maximum time without use, minus a margin
	used  time.Time
	over  *http.Client // sends the certificate that the session is bound to; nil: the session has no certificate
}

func (t ticket) good(now time.Time) bool {
	return t.token != "" && now.Before(t.until) && now.Sub(t.used) < t.idle
}

// use returns a session that should still be valid. It logs in if there is none.
func (s *session) use(ctx context.Context) (ticket, error) {
	if s.credentials == nil {
		return ticket{}, ErrNoCredentials
	}
	for {
		if held, ok := s.take(); ok {
			return held, nil
		}
		if _, err := s.logins.Do(ctx, "", func() (struct{}, error) { return struct{}{}, s.login(ctx) }); err != nil {
			return ticket{}, err
		}
	}
}

// take returns the current session if it should still be valid, and records its use.
func (s *session) take() (ticket, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if !s.held.good(now) {
		return ticket{}, false
	}
	s.held.used = now
	return s.held, true
}

// login opens a session, unless another login has just opened one.
func (s *session) login(ctx context.Context) error {
	if _, ok := s.take(); ok {
		return nil
	}
	held, err := s.open(ctx, s.credentials)
	if err != nil {
		return &LoginError{err}
	}
	s.mu.Lock()
	before := s.held.over
	s.held = held
	s.mu.Unlock()
	if before != nil && before != held.over {
		before.CloseIdleConnections() // requests in progress keep their connections
	}
	return nil
}

// boundHTTPClient returns the HTTP client with the certificate that the session is bound to. Sessions that are made from this
// session are bound to the same certificate.
func (s *session) boundHTTPClient() *http.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held.over
}

func (s *session) closeIdleConnections() {
	if over := s.boundHTTPClient(); over != nil {
		over.CloseIdleConnections()
	}
}

// drop forgets a session id that the key server refused, unless it was replaced in the meantime.
func (s *session) drop(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held.token == token {
		s.held = ticket{over: s.held.over}
	}
}

func cancelled(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// login is the route that opens a session, with or without an existing one.
var login = route{name: "login", method: http.MethodPost, path: "/api/sessions", named: true}

const maxMargin = 30 * time.Second

// login opens a session, or continues the session of a HeldSession.
func (c *Client) login(ctx context.Context, credentials Credentials) (ticket, error) {
	if held, ok := credentials.(heldSession); ok {
		return held.ticket(c)
	}
	_, t, err := c.opened(ctx, credentials)
	return t, err
}

func (c *Client) opened(ctx context.Context, credentials Credentials) (schema.LoginResponse, ticket, error) {
	in, err := credentials.Login(ctx)
	if err != nil {
		return schema.LoginResponse{}, ticket{}, err
	}
	var header http.Header
	k := call{route: login, target: login.path, body: in, bind: true, header: &header}
	k.open = true
	if shown, ok := credentials.(certificateCredentials); ok {
		if k.over, err = shown.over(*c.http); err != nil {
			return schema.LoginResponse{}, ticket{}, err
		}
	}
	out, err := attempts[schema.LoginResponse](ctx, c, k)
	if err != nil {
		if k.over != nil {
			k.over.CloseIdleConnections()
		}
		return out, ticket{}, err
	}
	return out, c.ticketOf(out, header, k.over), nil
}

// ticketOf converts times of the key server's clock to the local clock, using the Date header of the response. The two
// clocks can be minutes apart.
func (c *Client) ticketOf(out schema.LoginResponse, header http.Header, over *http.Client) ticket {
	now := c.now()
	there, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		there = now
	}
	life, idle := out.ExpiresAt.Sub(there), out.IdleExpiresAt.Sub(there)
	return ticket{
		token: out.SessionID.Reveal(),
		until: now.Add(life - margin(life)),
		idle:  idle - margin(idle),
		used:  now,
		over:  over,
	}
}

// margin returns how long before its end a session is replaced.
func margin(life time.Duration) time.Duration { return min(life/10, maxMargin) }

// Logout ends the client's session, if there is one. A later call opens another.
func (c *Client) Logout(ctx context.Context) error {
	c.session.mu.Lock()
	held := c.session.held
	c.session.held = ticket{over: held.over}
	c.session.mu.Unlock()
	if kept, ok := c.session.credentials.(heldSession); ok && held.token == "" {
		var err error
		if held, err = kept.ticket(c); err != nil {
			return err
		}
	}
	if held.token == "" {
		return nil
	}
	end := route{name: "endCurrentSession", method: http.MethodDelete, path: "/api/sessions/current", open: true, named: true}
	_, err := send[schema.SessionEnded](ctx, c, call{route: end, target: end.path, token: held.token, over: held.over})
	if e := asError(err); e != nil && e.Reauth {
		return nil // it had already ended
	}
	return err
}
