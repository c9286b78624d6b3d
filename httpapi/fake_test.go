package httpapi

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/dpop"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/approval"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// fakeApprovals has one approval that can be executed.
type fakeApprovals struct{ ops *fakePort }

func (f fakeApprovals) view() (approval.View, error) {
	return approval.View{
		Approval: keyserver.Approval{
			ID: someID, Method: "GET", Path: "/api/roles", Operations: []string{"listRoles"}, CreatedAt: epoch, ExpiresAt: epoch,
			Votes: []keyserver.ApprovalVote{{At: epoch}},
		},
		State: keyserver.ApprovalApproved, Tallies: []approval.Tally{{Rule: approval.Rule{Operation: "listRoles", Approvers: 1, Duty: keyserver.Trust}}},
	}, f.ops.err
}

func (f fakeApprovals) Policy(context.Context, keyserver.Caller) (approval.Policy, error) {
	return approval.Policy{}, f.ops.err
}

func (f fakeApprovals) SetPolicy(_ context.Context, _ keyserver.Caller, p approval.Policy, _ func(string) bool) (approval.Policy, error) {
	if f.ops.bad {
		return p, fault.New(fault.NotSaved, "reads back as another")
	}
	return p, f.ops.err
}

func (f fakeApprovals) Ask(context.Context, keyserver.Caller, approval.Request) (approval.View, error) {
	return f.view()
}

func (f fakeApprovals) List(context.Context, keyserver.Caller, approval.Filter) (approval.Page, error) {
	v, err := f.view()
	return approval.Page{Approvals: []approval.View{v}, Next: someID}, err
}

func (f fakeApprovals) Approval(context.Context, keyserver.Caller, keyserver.ID) (approval.View, error) {
	return f.view()
}

func (f fakeApprovals) Approve(context.Context, keyserver.Caller, keyserver.ID, [32]byte) (approval.View, error) {
	return f.view()
}

func (f fakeApprovals) Reject(context.Context, keyserver.Caller, keyserver.ID, [32]byte) (approval.View, error) {
	return f.view()
}

func (f fakeApprovals) Withdraw(context.Context, keyserver.Caller, keyserver.ID) (approval.View, error) {
	return f.view()
}

func (f fakeApprovals) Claim(context.Context, keyserver.Caller, keyserver.Approval) (approval.Execution, error) {
	return approval.Execution{ID: someID}, f.ops.err
}

const testToken = "the-session-id-of-these-tests"

// fakeSessions accepts one session id.
type fakeSessions struct {
	err error
	ops *fakePort              // the errors of ops also apply to requests about other sessions
	as  keyserver.PrincipalRef // the caller; if zero, the caller is ann
	// read simulates reading the session from the database; nil: the
	// session is in memory.
	read func()

	mu       sync.Mutex
	logins   []session.Login
	released int
	ended    int
}

func (f *fakeSessions) Login(_ context.Context, l session.Login) (session.Opened, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.logins = append(f.logins, l)
	if f.err != nil {
		return session.Opened{}, f.err
	}
	return session.Opened{Token: testToken, Info: f.info()}, nil
}

func (f *fakeSessions) info() session.Info {
	return session.Info{
		ID: someID, Kind: keyserver.PasswordSession, Principal: aUser, Roles: []keyserver.Role{aRole},
		Expiry: anExpiry,
	}
}

var anExpiry = session.Expiry{ExpiresAt: epoch.Add(8 * time.Hour), IdleExpiresAt: epoch.Add(15 * time.Minute)}

func (f *fakeSessions) List(context.Context, keyserver.Caller, session.Filter) (session.Page, error) {
	return session.Page{Sessions: []session.Summary{{
		ID: someID, Kind: keyserver.PasswordSession, Principal: aUser, Address: "192.0.2.1", CreatedAt: epoch, LastUsedAt: epoch, Expiry: anExpiry,
	}}, Next: someID}, f.ops.err
}

func (f *fakeSessions) EndOne(context.Context, keyserver.Caller, keyserver.ID) (int, error) {
	return 1, f.ops.err
}

func (f *fakeSessions) EndAll(context.Context, keyserver.Caller, keyserver.ID) (int, error) {
	return 2, f.ops.err
}

func (f *fakeSessions) SetPassword(context.Context, keyserver.Caller, session.NewPassword) (session.PasswordSaved, error) {
	if f.ops.bad {
		return session.PasswordSaved{Ended: 2, Detail: "another reads back"}, fault.New(fault.NotSaved, "another reads back")
	}
	return session.PasswordSaved{Saved: true, Ended: 2, Detail: "it reads back"}, f.ops.err
}

func (f *fakeSessions) Authenticate(_ context.Context, token string, _ session.Proof, from session.From) (keyserver.Caller, func(), error) {
	if f.read != nil {
		if err := from.Stranger.TakePlace(); err != nil {
			return keyserver.Caller{}, nil, err
		}
		f.read()
	}
	switch {
	case f.err != nil:
		return keyserver.Caller{}, nil, f.err
	case token != testToken:
		return keyserver.Caller{}, nil, fault.New(fault.SessionNotFound, "no such session")
	}
	who := ann
	if !f.as.ID.IsZero() {
		who = f.as
	}
	return keyserver.Caller{Principal: who, Name: "ann", RequestID: from.RequestID}, func() {
		f.mu.Lock()
		f.released++
		f.mu.Unlock()
	}, nil
}

func (f *fakeSessions) Current(context.Context, keyserver.Caller) (session.Info, error) {
	return f.info(), nil
}

func (f *fakeSessions) End(context.Context, keyserver.Caller) error {
	f.mu.Lock()
	f.ended++
	f.mu.Unlock()
	return nil
}

// fixture is an API with fake dependencies.
type fixture struct {
	ops      *fakePort
	sessions *fakeSessions
	log      *strings.Builder
	api      *API
}

func newFixture(t testing.TB, change ...func(*Config)) *fixture {
	t.Helper()
	f := &fixture{ops: newFakePort(), log: &strings.Builder{}}
	f.sessions = &fakeSessions{ops: f.ops}
	c := Config{Site: func(dpop.Origin) bool { return true }, Operations: verified.New(f.ops), Sessions: f.sessions, Approvals: fakeApprovals{f.ops}, Logger: slog.New(slog.NewJSONHandler(&lockedWriter{w: f.log}, nil))}
	for _, fn := range change {
		fn(&c)
	}
	api, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	f.api = api
	return f
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// do sends a request with a session.
func (f *fixture) do(method, target, body string) *httptest.ResponseRecorder {
	return f.send(request(method, target, body))
}

func (f *fixture) send(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	f.api.ServeHTTP(w, r)
	return w
}

func request(method, target, body string) *http.Request {
	var src io.Reader
	if body != "" {
		src = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, target, src)
	r.Header.Set("Authorization", "Bearer "+testToken)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}
