package approval

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Gate authorizes and audits the operations on approvals.
type Gate interface {
	Guard(ctx context.Context, by keyserver.Caller, g keyserver.ExternalOperation, effect func() error) error
	// GuardWrite is Guard with an effect in one transaction, which may also refuse the operation. It runs fn twice.
	GuardWrite(ctx context.Context, by keyserver.Caller, g keyserver.ExternalOperation, fn func(tx *sqlstore.Tx) error) error
	// Entitled returns nil if a role of the caller grants the operation.
	Entitled(ctx context.Context, by keyserver.Caller, op keyserver.Operation) error
}

// Config has the dependencies of a Service.
type Config struct {
	Store      *sqlstore.Store
	Gate       Gate
	Deployment keyserver.Deployment
	Clock      func() time.Time
	Random     io.Reader
}

// Service manages the approvals of a key server.
type Service struct{ Config }

// New returns a Service.
func New(c Config) *Service { return &Service{c} }

// Request is a request for which approval is requested. The caller of Ask has checked that the request can be executed.
type Request struct {
	Method, Path string
	Body         []byte // canonical, nil if there is none
	Reason       string
	Operations   []keyserver.Operation // that the request needs
	Effect       string                // DestroyKey, or empty
	Names        []keyserver.Subject   // objects that the request names
}

// View is the current state of an approval.
type View struct {
	keyserver.Approval
	State   keyserver.ApprovalState
	Tallies []Tally
	// Subjects are the objects that the request names. They are set only if a single open approval was read.
	Subjects []SubjectState
}

// Required returns the number of principals that have to approve.
func (v View) Required() int {
	most := 0
	for _, t := range v.Tallies {
		most = max(most, t.Approvers)
	}
	return most
}

// Execution is an approved request that may be executed once.
type Execution struct {
	ID       keyserver.ID
	Approved []string // the rules that the approvals satisfy
}

// own returns the caller and the description of an action, for the gate. The action needs no operation of a role, but
// is not allowed in delegated and scoped sessions.
func own(by keyserver.Caller, key, name string, id keyserver.ID) (keyserver.Caller, keyserver.ExternalOperation) {
	by.Approval = id
	return by, keyserver.ExternalOperation{
		Operation: keyserver.Operation{Key: key, Name: name}, Object: id.Hex(), Own: by.Actor.ID.IsZero() && by.Scope == nil,
	}
}

// Ask stores a request for approval. The roles of the asker must grant the operations that the request needs.
func (o *Service) Ask(ctx context.Context, by keyserver.Caller, r Request) (view View, err error) {
	switch {
	case !keyserver.Printable(r.Reason), strings.TrimSpace(r.Reason) == "":
		return View{}, fault.New(fault.BadRequest, "reason: must be one line of printable text, because the approvers read it")
	case !keyserver.Readable(string(r.Body)):
		return View{}, fault.New(fault.BadRequest, "body: contains a character that approvers cannot see (a hidden, blank or text-direction character); remove it")
	}
	a := keyserver.Approval{
		Asker: by.Principal, AskerName: by.Name, Method: r.Method, Path: r.Path, Body: r.Body, Reason: r.Reason,
	}
	if a.ID, err = values.NewID(o.Random); err != nil {
		return View{}, err
	}
	if a.Digest, err = Digest(a.Method, a.Path, a.Body); err != nil {
		return View{}, err
	}
	for _, op := range r.Operations {
		a.Operations = append(a.Operations, op.Key)
	}
	if r.Effect != "" {
		a.Operations = append(a.Operations, r.Effect)
	}
	entitled := by
	entitled.Approved = append([]string{GiveDuties}, a.Operations...)
	for _, op := range r.Operations {
		if err := o.Gate.Entitled(ctx, entitled, op); err != nil {
			return View{}, err
		}
	}
	by, g := own(by, keyserver.AuditAskApproval, "requesting approval", a.ID)
	err = o.Gate.GuardWrite(ctx, by, g, func(tx *sqlstore.Tx) error {
		now := o.Clock().UTC().Truncate(time.Microsecond)
		a.CreatedAt, a.ExpiresAt = now, now.Add(Lifetime)
		policy, err := Read(ctx, tx, o.Deployment)
		if err != nil {
			return err
		}
		if len(policy.Of(a.Operations)) == 0 {
			return fault.New(fault.InvalidArgument, "no rule of the approval policy guards this request; send it directly").
				Audited(fault.ReasonInvalidArgument)
		}
		if err := checkCapacity(ctx, tx, by.Principal, now); err != nil {
			return err
		}
		kept, subjects, err := recordSubjects(ctx, tx, by.Principal.ID, r.Names)
		if err != nil {
			return err
		}
		a.Subjects = kept
		if err := tx.InsertApproval(ctx, a); err != nil {
			return err
		}
		view, err = o.view(ctx, tx, a, policy)
		if err != nil {
			return err
		}
		view.Subjects, err = visibleSubjects(ctx, tx, by, subjects)
		return err
	})
	return view, err
}

// Pending returns the number of pending approvals.
func (o *Service) Pending(ctx context.Context) (int, error) {
	all, _, err := o.Store.PendingApprovals(ctx, keyserver.ID{}, o.Clock())
	return all, err
}

// checkCapacity deletes approvals that have been stored longer than their retention. It returns an error if no further approval
// may be stored.
func checkCapacity(ctx context.Context, tx *sqlstore.Tx, asker keyserver.PrincipalRef, now time.Time) error {
	if err := tx.DeleteApprovals(ctx, now.Add(-Retention), MaxPending); err != nil {
		return err
	}
	if err := tx.DeleteWithdrawnApprovals(ctx, asker.ID, WithdrawnRetention); err != nil {
		return err
	}
	all, of, err := tx.PendingApprovals(ctx, asker.ID, now)
	if err != nil {
		return err
	}
	if all >= MaxPending-Reserved {
		operations, err := operationsOf(ctx, tx, asker)
		if err != nil {
			return err
		}
		if !keyserver.HoldsDuty(operations, keyserver.AnyDuty) {
			return fault.New(fault.ApprovalLimit, "%d approvals are pending, and the last %d places are reserved for principals with a duty; try again when some are decided", all, Reserved).
				Audited(fault.ReasonLimit)
		}
	}
	switch {
	case of >= MaxPendingPerAsker:
		return fault.New(fault.ApprovalLimit, "the caller has %d open approvals, the limit; execute or withdraw one, or wait until one is rejected or expires", of).
			Audited(fault.ReasonLimit)
	case all >= MaxPending:
		return fault.New(fault.ApprovalLimit, "%d approvals are pending, the limit; reject some", all).Audited(fault.ReasonLimit)
	default:
		return nil
	}
}

// Approve records that the caller approves the request with this digest.
func (o *Service) Approve(ctx context.Context, by keyserver.Caller, id keyserver.ID, digest [32]byte) (View, error) {
	by, g := own(by, keyserver.AuditApprove, "approving", id)
	return o.decide(ctx, by, g, id, digest, func(tx *sqlstore.Tx, a *keyserver.Approval, now time.Time) error {
		subjects, err := rereadSubjects(ctx, tx, *a)
		if err != nil {
			return err
		}
		if err := unchanged(*a, subjects); err != nil {
			return err
		}
		if approved(*a, by) {
			return invalidState("the caller has already approved this request")
		}
		a.Votes = append(a.Votes, keyserver.ApprovalVote{Principal: by.Principal, Name: by.Name, At: now})
		return tx.InsertApprovalVote(ctx, id, a.Votes[len(a.Votes)-1])
	})
}

// Reject ends a request for approval. One rejection suffices.
func (o *Service) Reject(ctx context.Context, by keyserver.Caller, id keyserver.ID, digest [32]byte) (View, error) {
	by, g := own(by, keyserver.AuditReject, "rejecting", id)
	return o.decide(ctx, by, g, id, digest, func(tx *sqlstore.Tx, a *keyserver.Approval, now time.Time) error {
		a.Decision, a.DecidedAt, a.DecidedBy = keyserver.ApprovalRejected, now, by.Principal
		return tx.DecideApproval(ctx, *a)
	})
}

// Withdraw ends a request for approval if the caller is its asker. Otherwise Withdraw withdraws the caller's own
// approval.
func (o *Service) Withdraw(ctx context.Context, by keyserver.Caller, id keyserver.ID) (view View, err error) {
	by, g := own(by, keyserver.AuditWithdraw, "withdrawing", id)
	err = o.Gate.GuardWrite(ctx, by, g, func(tx *sqlstore.Tx) error {
		a, policy, err := o.read(ctx, tx, id)
		if err != nil {
			return err
		}
		now := o.Clock().UTC().Truncate(time.Microsecond)
		if err := mayWithdraw(a, by, now); err != nil {
			return err
		}
		if by.Principal == a.Asker {
			a.Decision, a.DecidedAt, a.DecidedBy = keyserver.ApprovalWithdrawn, now, by.Principal
			err = tx.DecideApproval(ctx, a)
		} else {
			a.Votes = slices.DeleteFunc(a.Votes, func(v keyserver.ApprovalVote) bool { return v.Principal == by.Principal })
			err = tx.DeleteApprovalVote(ctx, id, by.Principal)
		}
		if err != nil {
			return err
		}
		view, err = o.view(ctx, tx, a, policy)
		return err
	})
	return view, err
}

func (o *Service) decide(ctx context.Context, by keyserver.Caller, g keyserver.ExternalOperation, id keyserver.ID, digest [32]byte,
	write func(tx *sqlstore.Tx, a *keyserver.Approval, now time.Time) error,
) (view View, err error) {
	err = o.Gate.GuardWrite(ctx, by, g, func(tx *sqlstore.Tx) error {
		a, policy, err := o.read(ctx, tx, id)
		if err != nil {
			return err
		}
		holds, err := operationsOf(ctx, tx, by.Principal)
		if err != nil {
			return err
		}
		now := o.Clock().UTC().Truncate(time.Microsecond)
		if err := mayDecide(a, policy.Of(a.Operations), by, holds, digest, now); err != nil {
			return err
		}
		if err := write(tx, &a, now); err != nil {
			return err
		}
		view, err = o.view(ctx, tx, a, policy)
		return err
	})
	return view, err
}

// Claim marks an approved request as executed. Call it before the execution, with the approval that was read. The
// request counts as executed even if the execution fails, so that it never runs twice.
func (o *Service) Claim(ctx context.Context, by keyserver.Caller, read keyserver.Approval) (x Execution, err error) {
	runs, err := Digest(read.Method, read.Path, read.Body)
	if err != nil {
		return Execution{}, err
	}
	by, g := own(by, keyserver.AuditExecuteApproval, "executing", read.ID)
	err = o.Gate.GuardWrite(ctx, by, g, func(tx *sqlstore.Tx) error {
		a, policy, err := o.read(ctx, tx, read.ID)
		if err != nil {
			return err
		}
		v, err := o.view(ctx, tx, a, policy)
		if err != nil {
			return err
		}
		now := o.Clock().UTC().Truncate(time.Microsecond)
		if err := mayExecute(a, v.Tallies, by, runs, now); err != nil {
			return err
		}
		subjects, err := rereadSubjects(ctx, tx, a)
		if err != nil {
			return err
		}
		if err := unchanged(a, subjects); err != nil {
			return err
		}
		a.Decision, a.DecidedAt, a.DecidedBy = keyserver.ApprovalExecuted, now, by.Principal
		x = Execution{ID: a.ID}
		for _, t := range v.Tallies {
			x.Approved = append(x.Approved, t.Operation)
		}
		return tx.DecideApproval(ctx, a)
	})
	return x, err
}

// Approval reads one approval. An asker needs no role to read its own approvals.
func (o *Service) Approval(ctx context.Context, by keyserver.Caller, id keyserver.ID) (view View, err error) {
	a, err := o.Store.Approval(ctx, id)
	if err != nil && !errors.Is(err, sqlstore.ErrNotFound) {
		return View{}, err
	}
	g := keyserver.ExternalOperation{Operation: keyserver.OpReadApprovals, Object: id.Hex(), Own: err == nil && isOwn(by, a.Asker.ID)}
	err = o.Gate.Guard(ctx, by, g, func() error {
		if a.ID.IsZero() {
			return missing(sqlstore.ErrNotFound, id)
		}
		policy, err := Read(ctx, o.Store, o.Deployment)
		if err != nil {
			return err
		}
		view, err = o.view(ctx, o.Store, a, policy)
		if err != nil || view.State != keyserver.ApprovalPending && view.State != keyserver.ApprovalApproved {
			return err
		}
		subjects, err := rereadSubjects(ctx, o.Store, a)
		if err != nil {
			return err
		}
		view.Subjects, err = visibleSubjects(ctx, o.Store, by, subjects)
		return err
	})
	return view, err
}

// Filter selects approvals.
type Filter struct {
	Asker keyserver.ID // zero selects all askers
	// Open selects the approvals that can still be approved, rejected or executed.
	Open  bool
	After keyserver.ID // the last id of the previous page
	Limit int
}

const (
	// defaultPage is the number of approvals in a page if the filter has no limit.
	defaultPage = 100
	// pageBytes is the size of bodies and names in bytes after which a page ends. The last approval may exceed the
	// size. subjectBytes is the assumed size of a name. chunk is the number of approvals that one query reads. It is
	// small, because a body has up to MaxBody bytes.
	pageBytes    = 1 << 20
	subjectBytes = 128
	chunk        = 16
)

// Page is a page of approvals, ordered by id.
type Page struct {
	Approvals []View
	Next      keyserver.ID // the next page starts after this id; zero on the last page
}

// List reads a page of approvals. An asker needs no role to list its own approvals.
func (o *Service) List(ctx context.Context, by keyserver.Caller, f Filter) (page Page, err error) {
	g := keyserver.ExternalOperation{Operation: keyserver.OpReadApprovals, Own: isOwn(by, f.Asker)}
	if !f.Asker.IsZero() {
		g.Object = f.Asker.Hex()
	}
	err = o.Gate.Guard(ctx, by, g, func() error {
		limit := f.Limit
		if limit == 0 {
			limit = defaultPage
		}
		list, more, err := o.readPage(ctx, f, limit)
		if err != nil {
			return err
		}
		if more {
			page.Next = list[len(list)-1].ID
		}
		policy, err := Read(ctx, o.Store, o.Deployment)
		if err != nil {
			return err
		}
		known := ApproverOperations{} // operations of all approvers, each read once
		for _, a := range list {
			v, err := o.viewOf(ctx, o.Store, a, policy, known)
			if err != nil {
				return err
			}
			page.Approvals = append(page.Approvals, v)
		}
		return nil
	})
	return page, err
}

// readPage reads approvals until it has limit approvals or pageBytes bytes, but at least one approval. It reports whether
// there are more.
func (o *Service) readPage(ctx context.Context, f Filter, limit int) (list []keyserver.Approval, more bool, err error) {
	filter := sqlstore.ApprovalFilter{Asker: f.Asker, Open: f.Open, Now: o.Clock(), After: f.After}
	for room := pageBytes; ; {
		filter.Limit = min(limit-len(list)+1, chunk)
		part, err := o.Store.Approvals(ctx, filter)
		if err != nil {
			return nil, false, err
		}
		for _, a := range part {
			if len(list) == limit || room <= 0 {
				return list, true, nil
			}
			list, filter.After, room = append(list, a), a.ID, room-len(a.Body)-subjectBytes*len(a.Subjects)
		}
		if len(part) < filter.Limit {
			return list, false, nil
		}
	}
}

// reader is a store, or a transaction on it.
type reader interface {
	Approval(ctx context.Context, id keyserver.ID) (keyserver.Approval, error)
	ApprovalPolicy(ctx context.Context) ([]byte, error)
	Principal(ctx context.Context, id keyserver.ID) (keyserver.Principal, error)
	RolesInForce(ctx context.Context, p keyserver.Principal) ([]keyserver.ID, error)
	Granted(ctx context.Context, roles []keyserver.ID) ([]keyserver.ID, error)
}

func (o *Service) read(ctx context.Context, in reader, id keyserver.ID) (keyserver.Approval, Policy, error) {
	a, err := in.Approval(ctx, id)
	if err != nil {
		return a, nil, missing(err, id)
	}
	policy, err := Read(ctx, in, o.Deployment)
	return a, policy, err
}

// view computes the state of an approval from the policy and the current operations of its approvers.
func (o *Service) view(ctx context.Context, in reader, a keyserver.Approval, policy Policy) (View, error) {
	return o.viewOf(ctx, in, a, policy, ApproverOperations{})
}

// viewOf is view with known as a cache of the approvers' operations. It reads the missing approvers and adds them to
// known.
func (o *Service) viewOf(ctx context.Context, in reader, a keyserver.Approval, policy Policy, known ApproverOperations) (View, error) {
	if a.Decision == "" {
		for _, v := range a.Votes {
			if _, ok := known[v.Principal]; ok {
				continue
			}
			operations, err := operationsOf(ctx, in, v.Principal)
			if err != nil {
				return View{}, err
			}
			known[v.Principal] = operations
		}
	}
	tallies := Tallied(a, policy.Of(a.Operations), known)
	return View{Approval: a, State: State(a, tallies, o.Clock()), Tallies: tallies}, nil
}

// operationsOf returns the operations that the roles of a local principal and of its enabled groups grant now. It
// returns none if the principal is disabled or deleted.
func operationsOf(ctx context.Context, in reader, ref keyserver.PrincipalRef) ([]keyserver.ID, error) {
	p, err := in.Principal(ctx, ref.ID)
	if errors.Is(err, sqlstore.ErrNotFound) || err == nil && (p.Flags.Disabled() || p.Ref() != ref) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	roles, err := in.RolesInForce(ctx, p)
	if err != nil {
		return nil, err
	}
	return in.Granted(ctx, roles)
}

// isOwn reports whether the asker is the caller itself, in a session that is neither delegated nor
// scoped.
func isOwn(by keyserver.Caller, asker keyserver.ID) bool {
	return by.Actor.ID.IsZero() && by.Scope == nil && !asker.IsZero() && asker == by.Principal.ID
}

func missing(err error, id keyserver.ID) error {
	if errors.Is(err, sqlstore.ErrNotFound) {
		return fault.New(fault.NotFound, "no approval has the id %s", id.Hex()).Audited(fault.ReasonObjectNotFound)
	}
	return fmt.Errorf("read an approval: %w", err)
}
