package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// failureRowTimeout bounds the wait for the audit row of a failed effect when
// the caller is gone already.
const failureRowTimeout = 5 * time.Second

// request is one operation on its way through the gate.
type request struct {
	by       keyserver.Caller
	op       keyserver.Operation
	object   string               // what the audit row names
	link     keyserver.HiddenLink // the key that the operation is about, if it is about one
	filename string
	key      **heldKey // where a check finds which key that is: the row names that one
	effect   string    // the key of the effect (keyserver.Effects) that it has, if any
	counts   bool      // being let through is a use of the key, and may count one on its list
	own      bool      // about what is the caller's own, which needs no role
	// tries is the transaction of the effect, if the transaction itself may refuse it.
	tries func(tx *sqlstore.Tx) error
}

// check is a further condition, evaluated after the caller's role. It answers
// a fault with an audit reason when it refuses.
type check func(ctx context.Context, who access.Subject) error

// authorizeAndAudit is the gate: it decides whether the caller may do the operation, and then makes the audit row of that
// decision durable, before any effect. It fails if no row can be written. It returns a refusal only after its row is
// durable, too.
func (e *Engine) authorizeAndAudit(ctx context.Context, r request, checks ...check) error {
	if err := e.restrained(r.by, 1); err != nil {
		return err
	}
	refusal := e.authorise(ctx, r, checks)
	if r.counts {
		// A use that was counted has a row, even where the caller has gone away. The
		// writer bounds the wait.
		ctx = context.WithoutCancel(ctx)
	}
	if refusal != nil {
		return e.refused(ctx, r, refusal)
	}
	return e.Auditor.Write(ctx, r.row(keyserver.Allowed, ""))
}

// refused records that the gate let nobody through, and returns why.
func (e *Engine) refused(ctx context.Context, r request, refusal error) error {
	row := r.refusedRow(refusal)
	if row.Outcome == keyserver.Refused {
		e.countRefusal(r.by)
	}
	if err := e.Auditor.Write(ctx, row); err != nil {
		return err
	}
	return refusal
}

func (r request) refusedRow(refusal error) keyserver.AuditEntry {
	if f := fault.As(refusal); f != nil && f.Reason != "" {
		return r.row(keyserver.Refused, f.Reason)
	}
	return r.row(keyserver.Failed, fault.ReasonFailed) // not a decision: the store failed, or the caller went away
}

// refusals are the codes by which a transaction refuses a caller, as opposed to failing.
var refusals = []fault.Code{
	fault.Escalation, fault.DutiesConflict, fault.ApprovalRequired, fault.ApprovalState, fault.ApprovalLimit,
	fault.DigestMismatch, fault.SessionNotBound, fault.AccessDenied, fault.OwnAccount, fault.NotInScope,
}

func isRefusal(err error) bool { return slices.Contains(refusals, fault.CodeOf(err)) }

// write is perform for an effect that is one transaction, and that the transaction may
// refuse. The transaction is tried and undone first, so that a refusal has one row and
// nothing is recorded as allowed. fn therefore runs twice, and must change only tx and
// what it returns.
func (e *Engine) write(ctx context.Context, r request, fn func(tx *sqlstore.Tx) error) error {
	r.tries = fn
	return e.perform(ctx, r, func() error { return e.Store.Update(ctx, fn) })
}

// try returns the refusal of the transaction, or the failure of the store. Every other failure
// is left to the effect, which finds it again.
func (e *Engine) try(ctx context.Context, r request) error {
	if r.tries == nil || e.view != nil {
		return nil
	}
	err := e.Store.Try(ctx, r.tries)
	if f := fault.As(err); err != nil && (isRefusal(err) || f == nil || f.Retryable) {
		return err
	}
	return nil
}

// perform passes the gate and then runs the effect. A failed effect gets an
// audit row of its own.
func (e *Engine) perform(ctx context.Context, r request, effect func() error, checks ...check) error {
	if err := e.authorizeAndAudit(ctx, r, checks...); err != nil {
		return err
	}
	if err := effect(); err != nil {
		return e.failed(ctx, r, err)
	}
	return nil
}

// unasked writes the row of an operation that no caller asked for, and then runs the effect. A failed effect gets an
// audit row of its own.
func (e *Engine) unasked(ctx context.Context, r request, effect func() error) error {
	if err := e.Auditor.Write(ctx, r.row(keyserver.Allowed, "")); err != nil {
		return err
	}
	if err := effect(); err != nil {
		return e.failed(ctx, r, err)
	}
	return nil
}

// failed records that an allowed operation came to nothing, and returns why.
// The row is written even when the caller has gone away. It says refused if
// another change came between the decision and the effect and brought a refusal.
func (e *Engine) failed(ctx context.Context, r request, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), failureRowTimeout)
	defer cancel()
	outcome := keyserver.Failed
	if r.tries != nil && isRefusal(cause) {
		outcome = keyserver.Refused
	}
	if err := e.Auditor.Write(ctx, r.row(outcome, fault.ReasonOf(cause))); err != nil {
		return errors.Join(err, cause)
	}
	return cause
}

func (r request) row(outcome keyserver.Outcome, reason fault.Reason) keyserver.AuditEntry {
	var used keyserver.ID
	if r.key != nil {
		if *r.key != nil { // until then it is as it was named
			r.link = (*r.key).acl.Link
		}
		r.object = r.link.Base64()
	}
	if r.counts && outcome == keyserver.Allowed {
		_, used, _ = r.link.Split()
	}
	return keyserver.AuditEntry{
		UsedKey:   used,
		Operation: r.op.Key, Outcome: outcome, Reason: string(reason),
		Principal: r.by.Principal, Object: r.object, Kind: r.by.Kind,
		RequestID: r.by.RequestID, Filename: r.filename, Actor: r.by.Actor,
		Address: r.by.Address, Session: r.by.Session, For: r.by.For, Approval: r.by.Approval,
	}
}

// authorise decides: is this process current, may a delegated caller act and
// be acted for, is the caller's principal alive and enabled, is the
// certificate that it logged in with in force, does a role
// of it (or of a group it is in) grant the operation, unless it is about what is
// its own, has it the approval that the operation takes, do the further checks
// agree, and does the transaction of the effect let it. Rights are read anew for each operation, from caches that every
// committed change clears.
func (e *Engine) authorise(ctx context.Context, r request, checks []check) error {
	refusal := e.decide(ctx, r, checks)
	if refusal == nil {
		refusal = e.try(ctx, r)
	}
	if e.view != nil {
		return e.view.asked(r, refusal)
	}
	return refusal
}

// wouldAllow reports whether the gate would let an operation pass. It writes no row: only an operation that has a row may
// ask.
func (e *Engine) wouldAllow(ctx context.Context, by keyserver.Caller, op keyserver.Operation) bool {
	return e.authorise(ctx, request{by: by, op: op}, nil) == nil
}

// decide is what the gate says, also on an engine with a view, where nothing passes.
func (e *Engine) decide(ctx context.Context, r request, checks []check) error {
	if err := e.step(keyserver.StepCurrent, e.Store.Current(ctx)); err != nil {
		return err
	}
	if r.by.Peer != nil {
		return e.authorisePeer(ctx, r, checks)
	}
	who, roles, err := e.resolveSubject(ctx, r.by)
	if err != nil {
		return err
	}
	if r.own {
		return nil
	}
	if err := e.step(keyserver.StepLent, lent(r)); err != nil {
		return err
	}
	if refusal := coversOperation(r); refusal != nil {
		return e.step(keyserver.StepScope, refusal)
	}
	if err := e.step(keyserver.StepRole, e.granted(ctx, r, roles)); err != nil {
		return err
	}
	if err := e.step(keyserver.StepScope, coversKey(r)); err != nil {
		return err
	}
	if err := e.step(keyserver.StepApproval, e.guarded(ctx, r)); err != nil {
		return err
	}
	if _, marks := keyserver.MarkOf(ctx); marks {
		checks = append(slices.Clip(checks), e.alsoGranted(r.by, keyserver.OpSetOwner))
	}
	for _, c := range checks {
		if err := c(ctx, who); err != nil {
			return err
		}
	}
	return nil
}

// lent refuses to a session that acts for another what is no use of a key.
func lent(r request) error {
	if r.by.Actor.ID.IsZero() || r.op.Lent() {
		return nil
	}
	return fault.New(fault.AccessDenied, "%s is not lent: a session that acts for another is good for the use of keys alone; use a session of your own", r.op.Name).
		Audited(fault.ReasonNotLent)
}

// granted refuses what none of the roles grants.
func (e *Engine) granted(ctx context.Context, r request, roles []keyserver.ID) error {
	granted, err := e.grants(ctx, roles, r.op.ID)
	if err != nil || granted {
		return err
	}
	return fault.New(fault.AccessDenied, "no role of %s grants %s", r.by.Name, r.op.Name).Audited(fault.ReasonRoleDenied)
}

// coversOperation refuses to a scoped credential an operation that it does not name. It
// comes before the question for a role: much of what a session may do needs none, and no
// role would help.
func coversOperation(r request) error {
	if r.by.CoversOperation(r.op) {
		return nil
	}
	return fault.New(fault.NotInScope, "the scoped credential is not good for %s; have one made that names the operation, if it may be named", r.op.Name).
		Audited(fault.ReasonNotInScope)
}

// coversKey refuses to a scoped credential a key that it does not name.
func coversKey(r request) error {
	if r.by.Scope != nil && !slices.Contains(r.by.Scope, r.link) {
		return fault.New(fault.NotInScope, "the scoped credential does not cover this; it is good for the keys that it names and for nothing else").
			Audited(fault.ReasonNotInScope)
	}
	return nil
}

// alsoGranted is the check that a role of the caller grants another operation,
// too: one whose effect is part of what is asked for.
func (e *Engine) alsoGranted(by keyserver.Caller, op keyserver.Operation) check {
	return func(ctx context.Context, _ access.Subject) error {
		_, roles, err := e.subject(ctx, by)
		if err != nil {
			return err
		}
		granted, err := e.grants(ctx, roles, op.ID)
		if err != nil || granted {
			return err
		}
		return fault.New(fault.AccessDenied, "no role of %s grants %s, which this takes as well", by.Name, op.Name).Audited(fault.ReasonRoleDenied)
	}
}

// subject reads who the caller is at this moment: its principal, its enabled
// groups, and the roles of both.
func (e *Engine) subject(ctx context.Context, by keyserver.Caller) (access.Subject, []keyserver.ID, error) {
	p, err := e.principal(ctx, by.Principal.ID)
	if errors.Is(err, sqlstore.ErrNotFound) {
		return access.Subject{}, nil, fault.New(fault.SessionNotFound, "the session's principal no longer exists").Audited(fault.ReasonPrincipalDisabled)
	}
	if err != nil {
		return access.Subject{}, nil, err
	}
	if p.Flags.Disabled() {
		return access.Subject{}, nil, fault.New(fault.PrincipalOff, "principal %s is disabled", p.Name).Audited(fault.ReasonPrincipalDisabled)
	}
	who, roles := access.Subject{Principal: p.Ref()}, p.Roles
	for _, id := range p.Groups {
		g, err := e.principal(ctx, id)
		if errors.Is(err, sqlstore.ErrNotFound) {
			continue
		}
		if err != nil {
			return access.Subject{}, nil, err
		}
		if !g.Flags.Disabled() {
			who.Groups = append(who.Groups, g.Ref())
			roles = append(slices.Clip(roles), g.Roles...)
		}
	}
	return who, roles, nil
}

func (e *Engine) grants(ctx context.Context, roles []keyserver.ID, op keyserver.ID) (bool, error) {
	for _, id := range roles {
		role, err := e.role(ctx, id)
		if errors.Is(err, sqlstore.ErrNotFound) {
			continue
		}
		if err != nil {
			return false, err
		}
		if slices.Contains(role.Operations, op) {
			e.view.by(keyserver.Cause{Kind: keyserver.ChangeRole, ID: role.ID, Name: role.Name})
			return true, nil
		}
	}
	return false, nil
}
