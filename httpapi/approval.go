package httpapi

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/wire"
	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/operations"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/approval"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Approvals stores requests that need the approval of a second person.
type Approvals interface {
	Policy(ctx context.Context, by keyserver.Caller) (approval.Policy, error)
	SetPolicy(ctx context.Context, by keyserver.Caller, p approval.Policy, askable func(operation string) bool) (approval.Policy, error)
	Ask(ctx context.Context, by keyserver.Caller, r approval.Request) (approval.View, error)
	List(ctx context.Context, by keyserver.Caller, f approval.Filter) (approval.Page, error)
	Approval(ctx context.Context, by keyserver.Caller, id keyserver.ID) (approval.View, error)
	Approve(ctx context.Context, by keyserver.Caller, id keyserver.ID, digest [32]byte) (approval.View, error)
	Reject(ctx context.Context, by keyserver.Caller, id keyserver.ID, digest [32]byte) (approval.View, error)
	Withdraw(ctx context.Context, by keyserver.Caller, id keyserver.ID) (approval.View, error)
	// Claim marks an approved request as executed, before the caller executes it. It succeeds only once.
	Claim(ctx context.Context, by keyserver.Caller, read keyserver.Approval) (approval.Execution, error)
}

// storedRequest is a request that is stored in an approval: its route, and the function to call after decoding.
type storedRequest struct {
	route   *bound
	request *http.Request
	read    func(in any) error
}

// Header, Write and WriteHeader implement http.ResponseWriter, so that the mux can find the route of the stored
// request. They write nothing.
func (*storedRequest) Header() http.Header         { return http.Header{} }
func (*storedRequest) Write(b []byte) (int, error) { return len(b), nil }
func (*storedRequest) WriteHeader(int)             {}

// needlessEscape finds percent-encoded characters that need no encoding (RFC 3986, 6.2.2.2): letters, digits,
// and - . _ ~.
var needlessEscape = regexp.MustCompile(`(?i)%(2[de]|3[0-9]|4[1-9a-f]|5[0-9af]|6[1-9a-f]|7[0-9ae])`)

var errPath = fault.Field("path", "must be the path (with the query, if any) of a route that needs an operation of a role, and neither streams nor waits; see GET /api/openapi.json")

// inner returns an exchange for a request that is stored in an approval. Its caller is the caller of x. It sends no
// response.
func (x *exchange) inner(method, path string, body []byte) (*exchange, error) {
	u, err := url.ParseRequestURI(path)
	if err != nil {
		return nil, errPath
	}
	if e := needlessEscape.FindString(path); e != "" {
		return nil, fault.Field("path", "contains the needless escape "+e+"; write the character itself, because approvers read the path as it is sent")
	}
	r := (&http.Request{Method: method, URL: u, Host: x.r.Host, Header: http.Header{}, Body: http.NoBody}).WithContext(x.ctx)
	if body != nil {
		r.Body = nopCloser{bytes.NewReader(body)}
	}
	found := &storedRequest{}
	x.api.ServeHTTP(found, r)
	if found.route == nil || !found.route.Approvable() {
		return nil, errPath
	}
	return &exchange{api: x.api, w: found, r: found.request, ctx: x.ctx, route: found.route, call: x.call, start: x.start, stored: found}, nil
}

// nopCloser is a body whose Close does nothing.
type nopCloser struct{ *bytes.Reader }

func (nopCloser) Close() error { return nil }

// errDecodedOnly ends a stored request that is only decoded, not executed.
var errDecodedOnly = errors.New("read, and not carried out")

// askApproval stores a request for which approval is requested. It first checks that the request is valid and contains
// no secret.
func askApproval(x *exchange) (any, error) {
	var in schema.ApprovalRequest
	if err := x.decode(wire.Of(reflect.TypeFor[schema.ApprovalRequest]()), &in); err != nil {
		return nil, err
	}
	if err := x.enter(); err != nil {
		return nil, err
	}
	if len(in.Body) > approval.MaxBody {
		return nil, fault.Field("body", "must have at most 64 KiB in the form of RFC 8785")
	}
	inner, err := x.inner(in.Method, string(in.Path), in.Body)
	if err != nil {
		return nil, err
	}
	var secrets []string
	var names []keyserver.Subject
	inner.stored.read = func(read any) error {
		table := wire.Of(inner.route.Request)
		secrets, names = table.Secrets(read), subjects(inner.route.Route, table.Names(read))
		return errDecodedOnly
	}
	switch _, err := inner.route.run(inner); {
	case fault.CodeOf(err) == fault.BadRequest:
		return nil, fault.Field("body", "is not valid for "+in.Method+" "+string(in.Path)+": "+fault.As(err).Detail)
	case !errors.Is(err, errDecodedOnly):
		return nil, err
	case len(secrets) > 0:
		return nil, fault.Field("body."+secrets[0], "is secret, but approvers can read the request; request the approval without it")
	}
	view, err := x.api.Approvals.Ask(x.ctx, x.call.by, approval.Request{
		Method: in.Method, Path: string(in.Path), Body: in.Body, Reason: in.Reason, Operations: inner.route.Operations, Effect: inner.route.Effect, Names: names,
	})
	if err != nil {
		return nil, err
	}
	return approvalOf(view), nil
}

// executeApproval executes an approved request in the session and with the current rights of its caller. It claims the
// approval after it has decoded the request and before the request has any effect.
func executeApproval(x *exchange) (any, error) {
	var in schema.ByID
	if err := x.decode(wire.Of(reflect.TypeFor[schema.ByID]()), &in); err != nil {
		return nil, err
	}
	if err := x.enter(); err != nil {
		return nil, err
	}
	view, err := x.api.Approvals.Approval(x.ctx, x.call.by, keyserver.ID(in.ID))
	if err != nil {
		return nil, err
	}
	inner, err := x.inner(view.Method, view.Path, view.Body)
	if err != nil {
		return nil, fault.New(fault.ApprovalState, "this release no longer has the route %s %s of the approval; request another approval", view.Method, view.Path)
	}
	inner.stored.read = func(any) error {
		claimed, err := x.api.Approvals.Claim(x.ctx, x.call.by, view.Approval)
		inner.call.by.Approval, inner.call.by.Approved = claimed.ID, claimed.Approved
		return err
	}
	return inner.route.run(inner)
}

func getApprovalPolicy(a *API, ctx context.Context, c call, _ nothing) (schema.ApprovalPolicy, error) {
	p, err := a.Approvals.Policy(ctx, c.by)
	if err != nil {
		return schema.ApprovalPolicy{}, err
	}
	out := schema.ApprovalPolicy{Rules: operations.Convert(p, ruleOf), Detail: "request approval of guarded operations with POST /api/approvals"}
	if len(p) == 0 {
		out.Detail = "no operation needs an approval"
	}
	return out, nil
}

func setApprovalPolicy(a *API, ctx context.Context, c call, in schema.ApprovalPolicyRequest) (schema.ApprovalPolicySaved, error) {
	p := approval.Policy(operations.Convert(in.Rules, func(r schema.ApprovalRule) approval.Rule {
		return approval.Rule{Operation: r.Operation, Approvers: r.Approvers, Duty: keyserver.Duty(r.Duty)}
	}))
	saved, err := a.Approvals.SetPolicy(ctx, c.by, p, a.canRequestApproval)
	return schema.ApprovalPolicySaved{Saved: err == nil, Rules: operations.Convert(saved, ruleOf), Verdict: schema.Verdict{Detail: "the second read returned the rules that were sent"}}, err
}

// canRequestApproval reports whether an approval can be requested for any route that needs the operation or has the
// effect. It ignores routes whose request always contains a secret.
func (a *API) canRequestApproval(operation string) bool {
	return slices.ContainsFunc(a.routes, func(r routes.Route) bool {
		needs := slices.ContainsFunc(r.Operations, func(op keyserver.Operation) bool { return op.Key == operation })
		return r.Approvable() && !wire.Of(r.Request).NeedsSecret() && (needs || r.Effect == operation)
	})
}

func listApprovals(a *API, ctx context.Context, c call, in schema.ApprovalQuery) (schema.ApprovalListing, error) {
	f := approval.Filter{Open: in.Open != nil && *in.Open}
	if in.Asker != nil {
		f.Asker = keyserver.ID(*in.Asker)
	}
	if in.After != nil {
		f.After = keyserver.ID(*in.After)
	}
	if in.Limit != nil {
		f.Limit = *in.Limit
	}
	page, err := a.Approvals.List(ctx, c.by, f)
	if err != nil {
		return schema.ApprovalListing{}, err
	}
	out := schema.ApprovalListing{Count: len(page.Approvals), Approvals: operations.Convert(page.Approvals, approvalOf), Detail: "the last page"}
	if !page.Next.IsZero() {
		out.Next, out.Detail = (*schema.HexID)(&page.Next), "there are more; request them with after set to next"
	}
	return out, nil
}

func getApproval(a *API, ctx context.Context, c call, in schema.ByID) (schema.Approval, error) {
	return viewed(a.Approvals.Approval(ctx, c.by, keyserver.ID(in.ID)))
}

func approve(a *API, ctx context.Context, c call, in schema.ApprovalDecision) (schema.Approval, error) {
	return viewed(a.Approvals.Approve(ctx, c.by, keyserver.ID(in.ID), in.Digest))
}

func reject(a *API, ctx context.Context, c call, in schema.ApprovalDecision) (schema.Approval, error) {
	return viewed(a.Approvals.Reject(ctx, c.by, keyserver.ID(in.ID), in.Digest))
}

func withdrawApproval(a *API, ctx context.Context, c call, in schema.ByID) (schema.Approval, error) {
	return viewed(a.Approvals.Withdraw(ctx, c.by, keyserver.ID(in.ID)))
}

func viewed(v approval.View, err error) (schema.Approval, error) {
	if err != nil {
		return schema.Approval{}, err
	}
	return approvalOf(v), nil
}

func ruleOf(r approval.Rule) schema.ApprovalRule {
	return schema.ApprovalRule{Operation: r.Operation, Approvers: r.Approvers, Duty: string(r.Duty)}
}

func approvalOf(v approval.View) schema.Approval {
	out := schema.Approval{
		ApprovalID: schema.HexID(v.ID), State: string(v.State), Digest: v.Digest,
		Method: v.Method, Path: v.Path, Body: v.Body, Reason: v.Reason, Asker: personOf(v.Asker), AskerName: v.AskerName,
		Operations: v.Operations, Required: v.Required(),
		Rules: operations.Convert(v.Tallies, func(t approval.Tally) schema.ApprovalTally {
			return schema.ApprovalTally{ApprovalRule: ruleOf(t.Rule), Approved: t.Approved}
		}),
		ApprovedBy: operations.Convert(v.Votes, func(o keyserver.ApprovalVote) schema.ApprovalVote {
			return schema.ApprovalVote{ApprovalPerson: personOf(o.Principal), Name: o.Name, At: o.At}
		}),
		CreatedAt: v.CreatedAt, ExpiresAt: v.ExpiresAt, Detail: approvalDetails[v.State],
	}
	if v.Subjects != nil {
		out.Subjects = operations.Convert(v.Subjects, subjectOf)
	}
	if slices.ContainsFunc(v.Subjects, func(l approval.SubjectState) bool { return l.Changed }) {
		out.Detail = "an object of the request has changed, so the request can be neither approved nor executed; request approval again"
	}
	if v.Decision != "" {
		by := personOf(v.DecidedBy)
		out.DecidedAt, out.DecidedBy = &v.DecidedAt, &by
	}
	return out
}

var approvalDetails = map[keyserver.ApprovalState]string{
	keyserver.ApprovalPending:   "waiting for approvers",
	keyserver.ApprovalApproved:  "approved; its requester can execute it once",
	keyserver.ApprovalExpired:   "expired, because it was not executed in time; request approval again",
	keyserver.ApprovalRejected:  "rejected permanently",
	keyserver.ApprovalWithdrawn: "withdrawn by its requester",
	keyserver.ApprovalExecuted:  "executed; the audit rows with its id contain the outcome",
}

func personOf(p keyserver.PrincipalRef) schema.ApprovalPerson {
	return schema.ApprovalPerson{ID: schema.HexID(p.ID), PrincipalID: schema.DecimalID(p.ID), SystemID: schema.SystemID(p.System)}
}
