package gate

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

// failureRowTimeout limits the time for writing the audit row of a failed effect, even if the caller has disconnected.
const failureRowTimeout = 5 * time.Second

// Request describes one operation that the gate decides on.
type Request struct {
	By       keyserver.Caller
	Op       keyserver.Operation
	Object   string               // the object in the audit row
	Link     keyserver.HiddenLink // the key of the operation, if it has one
	Filename string
	Chosen   bool   // a check chooses the key, which then becomes the object of the audit row
	Effect   string // key in keyserver.Effects of the effect of the operation, if it has one
	Counts   bool   // an allowed request is a use of the key
	Own      bool   // the object belongs to the caller: no role is needed, no check runs, and there is no target
	// Tries is the transaction of the effect. It is set only if the transaction may refuse the operation.
	Tries func(tx *sqlstore.Tx) error
}

// Check is a further condition for an operation, evaluated after the roles of the caller. It has no effect. To refuse
// the operation, it returns a fault with an audit reason.
type Check func(ctx context.Context, who access.Subject) error

// AuthorizeAndAudit decides whether the caller may do the operation. Before it returns, the audit row of the decision
// is durable, for a refusal too. It fails if the row cannot be written.
func (g *Gate) AuthorizeAndAudit(ctx context.Context, r Request, checks ...Check) error {
	_, _, err := authorizeAndAudit(ctx, g, r, noTarget, checks)
	return err
}

// Target is the object of an operation that a check finds, for example the key to use.
type Target interface {
	// Link returns the link of the object, or "" if the check has not found the object. If Request.Chosen is set, the
	// audit row names the link.
	Link() keyserver.HiddenLink
	// Count counts the use of the object, if the operation is a use. It may refuse the operation.
	Count(ctx context.Context, by keyserver.Caller) error
}

// Resolver is a Check that also returns the target of the operation. If it refuses the target, it returns the target
// too, for the audit row. The target is never a nil pointer.
type Resolver[T Target] func(ctx context.Context, who access.Subject) (T, error)

// authorizeAndAudit is AuthorizeAndAudit for an operation with a target. It returns the target and the request. If
// r.Chosen is set, the returned request has the link of the target.
func authorizeAndAudit[T Target](ctx context.Context, g *Gate, r Request, resolve Resolver[T], checks []Check) (target T, _ Request, err error) {
	if err := g.restrained(r.By, 1); err != nil {
		return target, r, err
	}
	target, r, refusal := authorize(ctx, g, r, resolve, checks)
	if r.Counts {
		// A use that was counted must have a row, even if the caller has disconnected. The writer limits the wait.
		ctx = context.WithoutCancel(ctx)
	}
	if refusal != nil {
		return target, r, g.refused(ctx, r, refusal)
	}
	return target, r, g.auditor.Write(ctx, r.row(keyserver.Allowed, ""))
}

// noTarget is the Resolver of an operation without a target.
func noTarget(context.Context, access.Subject) (emptyTarget, error) { return emptyTarget{}, nil }

// emptyTarget is the Target of an operation without a target.
type emptyTarget struct{}

// Link implements Target.
func (emptyTarget) Link() keyserver.HiddenLink { return "" }

// Count implements Target.
func (emptyTarget) Count(context.Context, keyserver.Caller) error { return nil }

// refused writes the audit row of a refusal, or of a failure to decide. It returns refusal.
func (g *Gate) refused(ctx context.Context, r Request, refusal error) error {
	row := r.refusedRow(refusal)
	if row.Outcome == keyserver.Refused {
		g.CountRefusal(r.By)
	}
	if err := g.auditor.Write(ctx, row); err != nil {
		return err
	}
	return refusal
}

func (r Request) refusedRow(refusal error) keyserver.AuditEntry {
	if f := fault.As(refusal); f != nil && f.Reason != "" {
		return r.row(keyserver.Refused, f.Reason)
	}
	return r.row(keyserver.Failed, fault.ReasonFailed) // not a decision: the store failed, or the caller disconnected
}

// refusals are the codes of faults with which a transaction refuses the operation. Faults with other codes are
// failures.
var refusals = []fault.Code{
	fault.Escalation, fault.DutiesConflict, fault.ApprovalRequired, fault.ApprovalState, fault.ApprovalLimit,
	fault.DigestMismatch, fault.SessionNotBound, fault.AccessDenied, fault.OwnAccount, fault.NotInScope,
}

func isRefusal(err error) bool { return slices.Contains(refusals, fault.CodeOf(err)) }

// Write is Perform for an effect in one transaction that may refuse the operation. The gate first tries the transaction
// and rolls it back. Thus a refused operation has only one audit row, which says refused. Because fn runs twice, it
// must not change anything except tx and its results.
func (g *Gate) Write(ctx context.Context, r Request, fn func(tx *sqlstore.Tx) error) error {
	r.Tries = fn
	return g.Perform(ctx, r, func() error { return g.Store.Update(ctx, fn) })
}

// try returns the refusal of the transaction, or the failure of the store. It ignores other failures, because the
// effect later fails in the same way.
func (g *Gate) try(ctx context.Context, r Request) error {
	if r.Tries == nil || g.view != nil {
		return nil
	}
	err := g.Store.Try(ctx, r.Tries)
	if f := fault.As(err); err != nil && (isRefusal(err) || f == nil || f.Retryable) {
		return err
	}
	return nil
}

// Perform calls AuthorizeAndAudit and then runs the effect. A failed effect gets a second audit row.
func (g *Gate) Perform(ctx context.Context, r Request, effect func() error, checks ...Check) error {
	return PerformOn(ctx, g, r, noTarget, func(emptyTarget) error { return effect() }, checks...)
}

// PerformOn is Perform for an operation with a target. It calls resolve, then the checks, and then effect with the
// target.
func PerformOn[T Target](ctx context.Context, g *Gate, r Request, resolve Resolver[T], effect func(T) error, checks ...Check) error {
	target, r, err := authorizeAndAudit(ctx, g, r, resolve, checks)
	if err != nil {
		return err
	}
	if err := effect(target); err != nil {
		return g.Failed(ctx, r, err)
	}
	return nil
}

// PerformUnrequested runs an effect that no caller requested, after it has written the audit row. A failed effect gets
// a second audit row.
func (g *Gate) PerformUnrequested(ctx context.Context, r Request, effect func() error) error {
	if err := g.auditor.Write(ctx, r.row(keyserver.Allowed, "")); err != nil {
		return err
	}
	if err := effect(); err != nil {
		return g.Failed(ctx, r, err)
	}
	return nil
}

// Failed writes the audit row of an allowed operation whose effect failed, and returns cause. It writes the row even if
// the caller has disconnected. If the transaction of the effect refused the operation, the outcome in the row is
// "refused".
func (g *Gate) Failed(ctx context.Context, r Request, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), failureRowTimeout)
	defer cancel()
	outcome := keyserver.Failed
	if r.Tries != nil && isRefusal(cause) {
		outcome = keyserver.Refused
	}
	if err := g.auditor.Write(ctx, r.row(outcome, fault.ReasonOf(cause))); err != nil {
		return errors.Join(err, cause)
	}
	return cause
}

func (r Request) row(outcome keyserver.Outcome, reason fault.Reason) keyserver.AuditEntry {
	var used keyserver.ID
	if r.Chosen {
		r.Object = r.Link.Base64()
	}
	if r.Counts && outcome == keyserver.Allowed {
		_, used, _ = r.Link.Split()
	}
	return keyserver.AuditEntry{
		UsedKey:   used,
		Operation: r.Op.Key, Outcome: outcome, Reason: string(reason),
		Principal: r.By.Principal, Object: r.Object, Kind: r.By.Kind,
		RequestID: r.By.RequestID, Filename: r.Filename, Actor: r.By.Actor,
		Address: r.By.Address, Session: r.By.Session, For: r.By.Purpose, Approval: r.By.Approval,
	}
}

// authorize decides on an operation without a target.
func (g *Gate) authorize(ctx context.Context, r Request, checks []Check) error {
	_, _, refusal := authorize(ctx, g, r, noTarget, checks)
	return refusal
}

// authorize decides on an operation: it calls admit, evaluates the checks, counts the use, and tries the transaction of
// the effect. It returns the request like authorizeAndAudit.
func authorize[T Target](ctx context.Context, g *Gate, r Request, resolve Resolver[T], checks []Check) (target T, _ Request, refusal error) {
	who, refusal := g.admit(ctx, r)
	if refusal == nil && !r.Own {
		target, r, refusal = checkAndCount(ctx, g, r, who, resolve, checks)
	}
	if refusal == nil {
		refusal = g.try(ctx, r)
	}
	if g.view != nil {
		refusal = g.view.recordDecision(r, refusal)
	}
	return target, r, refusal
}

// checkAndCount evaluates resolve and the checks. If all pass, it counts the use of the target, but not for an
// explanation.
func checkAndCount[T Target](ctx context.Context, g *Gate, r Request, who access.Subject, resolve Resolver[T], checks []Check) (T, Request, error) {
	target, err := resolve(ctx, who)
	if _, marks := keyserver.MarkOf(ctx); marks && r.By.Peer == nil {
		checks = append(slices.Clip(checks), g.AlsoGranted(r.By, keyserver.OpSetOwner))
	}
	for i := 0; i < len(checks) && err == nil; i++ {
		err = checks[i](ctx, who)
	}
	if err == nil && g.view == nil {
		err = target.Count(ctx, r.By)
	}
	if link := target.Link(); r.Chosen && link != "" {
		r.Link = link
	}
	return target, r, err
}

// WouldAllow reports whether the gate would allow an operation. It writes no audit row. Call it only in an operation
// that has a separate row.
func (g *Gate) WouldAllow(ctx context.Context, by keyserver.Caller, op keyserver.Operation) bool {
	return g.authorize(ctx, Request{By: by, Op: op}, nil) == nil
}

// admit makes all checks that are the same for each operation. It returns the subject of the caller.
//
// It requires that this process is current, that the principal of the caller exists and is enabled, and that the
// certificate of the session is in force. In a delegated session, the delegator must still permit the delegation.
// Unless the object belongs to the caller, a role has to grant the operation and the approval policy has to allow it.
// Every operation reads the rights again, from caches that each committed change clears.
func (g *Gate) admit(ctx context.Context, r Request) (access.Subject, error) {
	if err := g.Step(keyserver.StepCurrent, g.Store.Current(ctx)); err != nil {
		return access.Subject{}, err
	}
	if r.By.Peer != nil {
		return g.admitPeer(ctx, r)
	}
	who, roles, err := g.resolveSubject(ctx, r.By)
	if err != nil || r.Own {
		return who, err
	}
	if err := g.Step(keyserver.StepDelegable, refuseUndelegable(r)); err != nil {
		return who, err
	}
	if refusal := coversOperation(r); refusal != nil {
		return who, g.Step(keyserver.StepScope, refusal)
	}
	if err := g.Step(keyserver.StepRole, g.granted(ctx, r, roles)); err != nil {
		return who, err
	}
	if err := g.Step(keyserver.StepScope, coversKey(r)); err != nil {
		return who, err
	}
	return who, g.Step(keyserver.StepApproval, g.guarded(ctx, r))
}

// refuseUndelegable refuses an operation in a delegated session unless it is a use of a key.
func refuseUndelegable(r Request) error {
	if r.By.Actor.ID.IsZero() || r.Op.Delegable() {
		return nil
	}
	return fault.New(fault.AccessDenied, "operation %q is not allowed in a delegated session, which may only use keys; log in as yourself", r.Op.Name).
		Audited(fault.ReasonNotLent)
}

// granted refuses an operation that no role in roles grants.
func (g *Gate) granted(ctx context.Context, r Request, roles []keyserver.ID) error {
	granted, err := g.grants(ctx, roles, r.Op.ID)
	if err != nil || granted {
		return err
	}
	return fault.New(fault.AccessDenied, "no role of %s grants %s; ask an administrator to grant it", r.By.Name, r.Op.Name).Audited(fault.ReasonRoleDenied)
}

// coversOperation refuses an operation that the scoped credential of the caller does not name. admit calls it before it
// checks the roles, because no role would help.
func coversOperation(r Request) error {
	if r.By.CoversOperation(r.Op) {
		return nil
	}
	return fault.New(fault.NotInScope, "the scoped credential does not allow operation %q; use a session, or create a scoped credential for this operation if possible", r.Op.Name).
		Audited(fault.ReasonNotInScope)
}

// coversKey refuses a key that the scoped credential of the caller does not name.
func coversKey(r Request) error {
	if r.By.Scope != nil && !slices.Contains(r.By.Scope, r.Link) {
		return fault.New(fault.NotInScope, "the scoped credential does not cover this object, but only the keys that it names; use a session").
			Audited(fault.ReasonNotInScope)
	}
	return nil
}

// AlsoGranted returns a check that a role of the caller grants another operation, whose effect is part of this one.
func (g *Gate) AlsoGranted(by keyserver.Caller, op keyserver.Operation) Check {
	return func(ctx context.Context, _ access.Subject) error {
		_, roles, err := g.subject(ctx, by)
		if err != nil {
			return err
		}
		granted, err := g.grants(ctx, roles, op.ID)
		if err != nil || granted {
			return err
		}
		return fault.New(fault.AccessDenied, "no role of %s grants %s, which this request also needs; ask an administrator to grant it", by.Name, op.Name).Audited(fault.ReasonRoleDenied)
	}
}

// subject returns the current principal of the caller, its enabled groups, and the roles of both.
func (g *Gate) subject(ctx context.Context, by keyserver.Caller) (access.Subject, []keyserver.ID, error) {
	p, err := g.CachedPrincipal(ctx, by.Principal.ID)
	if errors.Is(err, sqlstore.ErrNotFound) {
		return access.Subject{}, nil, fault.New(fault.SessionNotFound, "the session's principal no longer exists; log in as another one").Audited(fault.ReasonPrincipalDisabled)
	}
	if err != nil {
		return access.Subject{}, nil, err
	}
	if p.Flags.Disabled() {
		return access.Subject{}, nil, fault.New(fault.PrincipalOff, "principal %s is disabled; ask an administrator to enable it", p.Name).Audited(fault.ReasonPrincipalDisabled)
	}
	who, roles := access.Subject{Principal: p.Ref()}, p.Roles
	for _, id := range p.Groups {
		group, err := g.CachedPrincipal(ctx, id)
		if errors.Is(err, sqlstore.ErrNotFound) {
			continue
		}
		if err != nil {
			return access.Subject{}, nil, err
		}
		if !group.Flags.Disabled() {
			who.Groups = append(who.Groups, group.Ref())
			roles = append(slices.Clip(roles), group.Roles...)
		}
	}
	return who, roles, nil
}

func (g *Gate) grants(ctx context.Context, roles []keyserver.ID, op keyserver.ID) (bool, error) {
	for _, id := range roles {
		role, err := g.roles.Get(ctx, id)
		if errors.Is(err, sqlstore.ErrNotFound) {
			continue
		}
		if err != nil {
			return false, err
		}
		if slices.Contains(role.Operations, op) {
			g.view.setCause(keyserver.Cause{Kind: keyserver.ChangeRole, ID: role.ID, Name: role.Name})
			return true, nil
		}
	}
	return false, nil
}
