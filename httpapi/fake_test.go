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

	"github.com/keyserver-operator/keyserver-operator/internal/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/session"
	"github.com/keyserver-operator/keyserver-operator/internal/verified"
)

// The fakes here answer something plausible and record what reached them. They
// serve tests of refusals and of encoding only; what the operations do is
// tested against the real ones elsewhere.

const testToken = "the-session-id-of-these-tests"

var (
	epoch     = time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	someID    = keyserver.IDFromUint64(1001)
	someRef   = keyserver.PrincipalRef{System: 1, ID: someID}
	aLink     = keyserver.NewHiddenLink(1, someID)
	aRole     = keyserver.Role{ID: someID, Name: "Auditor", BuiltIn: true, Operations: []keyserver.ID{keyserver.OpReadAudit.ID}}
	aUser     = keyserver.Principal{ID: someID, System: 1, Type: keyserver.PasswordPrincipal, Name: "ann", Flags: keyserver.FlagEnable, Roles: []keyserver.ID{someID}}
	aWorkload = keyserver.Principal{
		ID: someID, System: 1, Type: keyserver.XAuthPrincipal, Name: "web", Flags: keyserver.FlagEnable, Roles: []keyserver.ID{}, Groups: []keyserver.ID{someID},
		Identity: &keyserver.Identity{Issuer: "https://issuer.example", Subject: "system:serviceaccount:shop:web", Audiences: []string{"keyserver"}},
	}
	anEntry = keyserver.ACLEntry{ID: someID, ACL: someID, Principal: someRef, Rights: keyserver.Read, MaxUsage: keyserver.NoUsageLimit}
	aList   = keyserver.ACL{ID: someID, Link: aLink, Entries: []keyserver.ACLEntry{anEntry}}
	aCA     = keyserver.Certificate{
		ID: someID, Status: keyserver.StatusCA, Subject: "/CN=ca", Issuer: "/CN=ca", KeyType: "EC P-256",
		Serial: []byte{1}, NotBefore: epoch, NotAfter: epoch.Add(time.Hour), DER: []byte{0x30, 0},
	}
)

// fakeOperations answers err to every call, where it is set.
type fakeOperations struct {
	err error
	// bad makes verified writes come out with the filled result and err.
	bad   bool
	ready []keyserver.Readiness
	// during runs inside each call.
	during func(ctx context.Context)

	mu    sync.Mutex
	calls []string
	got   any // the last argument of interest
}

func (f *fakeOperations) called(ctx context.Context, name string, got any) error {
	f.mu.Lock()
	f.calls = append(f.calls, name)
	f.got = got
	f.mu.Unlock()
	if f.during != nil {
		f.during(ctx)
	}
	return f.err
}

func (f *fakeOperations) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.calls...)
}

// judged keeps the filled result of a verified write that came out bad.
func judged[T any](f *fakeOperations, v T, err error) (T, error) {
	if f.bad {
		return v, err
	}
	return answer(v, err)
}

func answer[T any](v T, err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return v, nil
}

func (f *fakeOperations) MintKey(ctx context.Context, _ keyserver.Caller, k keyserver.NewKey) (keyserver.KeyMetadata, error) {
	k.Material = append([]byte(nil), k.Material...)
	return answer(keyserver.KeyMetadata{Link: aLink, Algorithm: k.Algorithm, KeyBytes: 48}, f.called(ctx, "MintKey", k))
}

func (f *fakeOperations) Key(ctx context.Context, _ keyserver.Caller, l keyserver.HiddenLink) (keyserver.KeyMetadata, error) {
	return answer(keyserver.KeyMetadata{Link: l, Algorithm: keyserver.HMACSHA384, KeyBytes: 48}, f.called(ctx, "Key", l))
}

func (f *fakeOperations) AuthorizeKey(ctx context.Context, _ keyserver.Caller, use keyserver.Use) (keyserver.Grant, error) {
	return answer(keyserver.Grant{System: 1, FilenameAudited: use.Filename != ""}, f.called(ctx, "AuthorizeKey", use.Filename))
}

func (f *fakeOperations) HMAC(ctx context.Context, _ keyserver.Caller, r keyserver.HMACRequest) (mac [keyserver.MACSize]byte, err error) {
	if err := f.called(ctx, "HMAC", nil); err != nil {
		return mac, err
	}
	_, err = r.Message.WriteTo(io.Discard)
	return mac, err
}

func (f *fakeOperations) acl(ctx context.Context, name string, got any) (verified.ACLResult, error) {
	rights := keyserver.Read
	r := verified.ACLResult{Operation: name, Verified: !f.bad, Requested: &rights, Entry: &anEntry, ACL: aList, Detail: "evidence"}
	err := f.called(ctx, name, got)
	if f.bad {
		return r, err
	}
	return answer(r, err)
}

func (f *fakeOperations) GrantACL(ctx context.Context, _ keyserver.Caller, c keyserver.ACLChange) (verified.ACLResult, error) {
	return f.acl(ctx, "GrantACL", c)
}

func (f *fakeOperations) AmendACL(ctx context.Context, _ keyserver.Caller, c keyserver.ACLChange) (verified.ACLResult, error) {
	return f.acl(ctx, "AmendACL", c)
}

func (f *fakeOperations) RevokeACL(ctx context.Context, _ keyserver.Caller, r keyserver.ACLRevocation) (verified.ACLResult, error) {
	return f.acl(ctx, "RevokeACL", r.Principal)
}

func (f *fakeOperations) ACL(ctx context.Context, _ keyserver.Caller, l keyserver.HiddenLink) (verified.ACLResult, error) {
	r, err := f.acl(ctx, "ACL", l)
	r.Requested, r.Entry = nil, nil
	return r, err
}

func (f *fakeOperations) ListOperations(ctx context.Context, _ keyserver.Caller) ([]keyserver.Operation, error) {
	return answer(keyserver.Operations, f.called(ctx, "ListOperations", nil))
}

func (f *fakeOperations) Roles(ctx context.Context, _ keyserver.Caller) ([]keyserver.Role, error) {
	return answer([]keyserver.Role{aRole}, f.called(ctx, "Roles", nil))
}

func (f *fakeOperations) role(ctx context.Context, name string, got keyserver.RoleChange) (verified.RoleResult, error) {
	r := verified.RoleResult{Requested: got, Saved: !f.bad, Role: &aRole, Detail: "evidence"}
	err := f.called(ctx, name, got)
	if f.bad {
		return r, err
	}
	return answer(r, err)
}

func (f *fakeOperations) CreateRole(ctx context.Context, _ keyserver.Caller, n keyserver.NewRole) (verified.RoleResult, error) {
	return f.role(ctx, "CreateRole", keyserver.RoleChange{Name: &n.Name, Operations: n.Operations})
}

func (f *fakeOperations) UpdateRole(ctx context.Context, _ keyserver.Caller, c keyserver.RoleChange) (verified.RoleResult, error) {
	return f.role(ctx, "UpdateRole", c)
}

func (f *fakeOperations) DeleteRole(ctx context.Context, _ keyserver.Caller, id keyserver.ID) (verified.RoleGone, error) {
	r := verified.RoleGone{ID: id, Gone: !f.bad, Role: aRole, Detail: "evidence"}
	err := f.called(ctx, "DeleteRole", id)
	if f.bad {
		return r, err
	}
	return answer(r, err)
}

func (f *fakeOperations) TrustedCAs(ctx context.Context, _ keyserver.Caller) ([]keyserver.Certificate, error) {
	return answer([]keyserver.Certificate{aCA, {ID: someID}}, f.called(ctx, "TrustedCAs", nil))
}

func (f *fakeOperations) AddTrustedCA(ctx context.Context, _ keyserver.Caller, der []byte) (verified.TrustedCAAdded, error) {
	r := verified.TrustedCAAdded{Saved: !f.bad, ListCountAfter: 1, Detail: "evidence"}
	if !f.bad {
		r.MatchedBy, r.TrustedCA = verified.MatchedByBody, &aCA
	}
	err := f.called(ctx, "AddTrustedCA", der)
	if f.bad {
		return r, err
	}
	return answer(r, err)
}

func (f *fakeOperations) RemoveTrustedCA(ctx context.Context, _ keyserver.Caller, id keyserver.ID) (verified.TrustedCARemoved, error) {
	r := verified.TrustedCARemoved{Gone: !f.bad, ID: id, ListCountBefore: 1, TrustedCA: aCA, Detail: "evidence"}
	err := f.called(ctx, "RemoveTrustedCA", id)
	if f.bad {
		return r, err
	}
	return answer(r, err)
}

func (f *fakeOperations) Principal(ctx context.Context, _ keyserver.Caller, id keyserver.ID) (keyserver.Principal, error) {
	return answer(aUser, f.called(ctx, "Principal", id))
}

func (f *fakeOperations) CreatePasswordPrincipal(ctx context.Context, _ keyserver.Caller, p keyserver.NewPasswordPrincipal) (verified.PrincipalSaved, error) {
	r := verified.PrincipalSaved{Saved: !f.bad, Principal: &aUser, Detail: "evidence"}
	err := f.called(ctx, "CreatePasswordPrincipal", p)
	if f.bad {
		return r, err
	}
	return answer(r, err)
}

func (f *fakeOperations) CreatePrincipal(ctx context.Context, _ keyserver.Caller, p keyserver.NewPrincipal) (verified.PrincipalSaved, error) {
	return judged(f, verified.PrincipalSaved{Saved: !f.bad, Principal: &aWorkload, Detail: "evidence"}, f.called(ctx, "CreatePrincipal", p))
}

func (f *fakeOperations) ListPrincipals(ctx context.Context, _ keyserver.Caller, filter keyserver.PrincipalFilter) (keyserver.PrincipalPage, error) {
	page := keyserver.PrincipalPage{Principals: []keyserver.Principal{aUser, aWorkload}, Pattern: filter.Pattern(), OrderedBy: "name"}
	return answer(page, f.called(ctx, "ListPrincipals", filter))
}

func (f *fakeOperations) LookupPrincipals(ctx context.Context, _ keyserver.Caller, pairs []keyserver.PrincipalRef) ([]keyserver.Principal, error) {
	return answer([]keyserver.Principal{aUser}, f.called(ctx, "LookupPrincipals", pairs))
}

func (f *fakeOperations) UpdatePrincipalFlags(ctx context.Context, _ keyserver.Caller, c keyserver.FlagChange) (verified.FlagsResult, error) {
	r := verified.FlagsResult{Asked: c, Saved: !f.bad, Before: keyserver.FlagEnable, After: c.Apply(keyserver.FlagEnable), Detail: "evidence"}
	return judged(f, r, f.called(ctx, "UpdatePrincipalFlags", c))
}

func (f *fakeOperations) SetPrincipalRoles(ctx context.Context, _ keyserver.Caller, r keyserver.PrincipalRoles) (verified.RolesResult, error) {
	out := verified.RolesResult{Requested: r, Saved: !f.bad, Principal: aUser, Detail: "evidence"}
	return judged(f, out, f.called(ctx, "SetPrincipalRoles", r.Roles))
}

func (f *fakeOperations) GroupMembers(ctx context.Context, _ keyserver.Caller, g keyserver.GroupFilter) ([]keyserver.Principal, error) {
	return answer([]keyserver.Principal{aUser}, f.called(ctx, "GroupMembers", [2]int{g.Limit, g.Offset}))
}

func (f *fakeOperations) AddGroupMember(ctx context.Context, _ keyserver.Caller, m keyserver.Membership) (verified.MembershipResult, error) {
	r := verified.MembershipResult{Group: m.Group, Done: !f.bad, Member: aUser, Detail: "evidence"}
	return judged(f, r, f.called(ctx, "AddGroupMember", m.Member))
}

func (f *fakeOperations) RemoveGroupMember(ctx context.Context, _ keyserver.Caller, m keyserver.Membership) (verified.MembershipResult, error) {
	r := verified.MembershipResult{Group: m.Group, Done: !f.bad, Member: aUser, Detail: "evidence"}
	return judged(f, r, f.called(ctx, "RemoveGroupMember", m.Member))
}

func (f *fakeOperations) Version(ctx context.Context, _ keyserver.Caller) (keyserver.Version, error) {
	return answer(keyserver.Version{Major: 1, Banner: "test"}, f.called(ctx, "Version", nil))
}

func (f *fakeOperations) Audit(ctx context.Context, _ keyserver.Caller, filter keyserver.AuditFilter) (keyserver.AuditPage, error) {
	return answer(keyserver.AuditPage{Next: 7, Entries: []keyserver.AuditEntry{{
		Seq: 6, Time: epoch, Operation: "hmacData", Outcome: keyserver.Refused, Reason: "aclDenied", Principal: someRef, Kind: keyserver.PasswordSession,
	}}}, f.called(ctx, "Audit", filter))
}

func (f *fakeOperations) Changes(ctx context.Context, _ keyserver.Caller, c keyserver.ChangeFilter) (keyserver.ChangePage, error) {
	if err := f.called(ctx, "Changes", c.Wait); err != nil {
		return keyserver.ChangePage{}, err
	}
	if c.Wait > 0 {
		<-ctx.Done()
		return keyserver.ChangePage{}, ctx.Err()
	}
	return keyserver.ChangePage{Cursor: c.After + 1, Changes: []keyserver.Change{{Seq: c.After + 1, Kind: keyserver.ChangeRole, ID: someID, Action: keyserver.Created}}}, nil
}

func (f *fakeOperations) Ready(context.Context) []keyserver.Readiness {
	if f.ready != nil {
		return f.ready
	}
	return []keyserver.Readiness{{Part: "database", Ready: true, Detail: "answers"}}
}

// fakeSessions knows one session id.
type fakeSessions struct {
	err error

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
		ExpiresAt: epoch.Add(8 * time.Hour), IdleExpiresAt: epoch.Add(15 * time.Minute),
	}
}

func (f *fakeSessions) Authenticate(_ context.Context, token string, _ session.Proof, requestID string) (keyserver.Caller, func(), error) {
	switch {
	case f.err != nil:
		return keyserver.Caller{}, nil, f.err
	case token != testToken:
		return keyserver.Caller{}, nil, fault.New(fault.SessionNotFound, "no such session")
	}
	return keyserver.Caller{Principal: someRef, Name: "ann", RequestID: requestID}, func() {
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

// fixture is an API on fakes.
type fixture struct {
	ops      *fakeOperations
	sessions *fakeSessions
	log      *strings.Builder
	api      *API
}

func newFixture(t testing.TB, change ...func(*Config)) *fixture {
	t.Helper()
	f := &fixture{ops: &fakeOperations{}, sessions: &fakeSessions{}, log: &strings.Builder{}}
	c := Config{Operations: f.ops, Sessions: f.sessions, Logger: slog.New(slog.NewJSONHandler(&lockedWriter{w: f.log}, nil))}
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
