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

// failureRowTimeout bounds the wait for the audit row of a failed effect when
// the caller is gone already.
const failureRowTimeout = 5 * time.Second

// Request is one operation on its way through the gate.
type Request struct {
	By       keyserver.Caller
	Op       keyserver.Operation
	Object   string               // what the audit row names
	Link     keyserver.HiddenLink // the key that the operation is about, if it is about one
	Filename string
	Chosen   chosenKey // the key that a check chose: the row names that one
	Effect   string    // the key of the effect (keyserver.Effects) that it has, if any
	Counts   bool      // being let through is a use of the key, and may count one on its list
	Own      bool      // about what is the caller's own, which needs no role
	// Tries is the transaction of the effect, if the transaction itself may refuse it.
	Tries func(tx *sqlstore.Tx) error
}

// chosenKey is a key that a check chooses. Link is empty until then.
type chosenKey interface {
	Link() keyserver.HiddenLink
}

// Check is a further condition, evaluated after the caller's role. It answers
// a fault with an audit reason when it refuses.
type Check func(ctx context.Context, who access.Subject) error

// AuthorizeAndAudit is the gate: it decides whether the caller may do the operation, and then makes the audit row of that
// decision durable, before any effect. It fails if no row can be written. It returns a refusal only after its row is
// durable, too.
func (g *Gate) AuthorizeAndAudit(ctx context.Context, r Request, checks ...Check) error {
	if err := g.restrained(r.By, 1); err != nil {
		return err
	}
	refusal := g.authorise(ctx, r, checks)
	if r.Counts {
		// A use that was counted has a row, even where the caller has gone away. The
		// writer bounds the wait.
		ctx = context.WithoutCancel(ctx)
	}
	if refusal != nil {
		return g.refused(ctx, r, refusal)
	}
	return g.auditor.Write(ctx, r.row(keyserver.Allowed, ""))
}

// refused records that the gate let nobody through, and returns why.
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
	return r.row(keyserver.Failed, fault.ReasonFailed) // not a decision: the store failed, or the caller went away
}

// refusals are the codes by which a transaction refuses a caller, as opposed to failing.
var refusals = []fault.Code{
	fault.Escalation, fault.DutiesConflict, fault.ApprovalRequired, fault.ApprovalState, fault.ApprovalLimit,
	fault.DigestMismatch, fault.SessionNotBound, fault.AccessDenied, fault.OwnAccount, fault.NotInScope,
}

func isRefusal(err error) bool { return slices.Contains(refusals, fault.CodeOf(err)) }

// Write is Perform for an effect that is one transaction, and that the transaction may
// refuse. The transaction is tried and undone first, so that a refusal has one row and
// nothing is recorded as allowed. fn therefore runs twice, and must change only tx and
// what it returns.
func (g *Gate) Write(ctx context.Context, r Request, fn func(tx *sqlstore.Tx) error) error {
	r.Tries = fn
	return g.Perform(ctx, r, func() error { return g.Store.Update(ctx, fn) })
}

// try returns the refusal of the transaction, or the failure of the store. Every other failure
// is left to the effect, which finds it again.
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

// Perform passes the gate and then runs the effect. A failed effect gets an
// audit row of its own.
func (g *Gate) Perform(ctx context.Context, r Request, effect func() error, checks ...Check) error {
	if err := g.AuthorizeAndAudit(ctx, r, checks...); err != nil {
		return err
	}
	if err := effect(); err != nil {
		return g.Failed(ctx, r, err)
	}
	return nil
}

// Unasked writes the row of an operation that no caller asked for, and then runs the effect. A failed effect gets an
// audit row of its own.
func (g *Gate) Unasked(ctx context.Context, r Request, effect func() error) error {
	if err := g.auditor.Write(ctx, r.row(keyserver.Allowed, "")); err != nil {
		return err
	}
	if err := effect(); err != nil {
		return g.Failed(ctx, r, err)
	}
	return nil
}

// Failed records that an allowed operation came to nothing, and returns why.
// The row is written even when the caller has gone away. It says refused if
// another change came between the decision and the effect and brought a refusal.
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
	if r.Chosen != nil {
		if link := r.Chosen.Link(); link != "" { // until then it is as it was named
			r.Link = link
		}
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
		Address: r.By.Address, Session: r.By.Session, For: r.By.For, Approval: r.By.Approval,
	}
}

// authorise decides: is this process current, may a delegated caller act and
// be acted for, is the caller's principal alive and enabled, is the
// certificate that it logged in with in force, does a role
// of it (or of a group it is in) grant the operation, unless it is about what is
// its own, has it the approval that the operation takes, do the further checks
// agree, and does the transaction of the effect let it. Rights are read anew for each operation, from caches that every
// committed change clears.
func (g *Gate) authorise(ctx context.Context, r Request, checks []Check) error {
	refusal := g.decide(ctx, r, checks)
	if refusal == nil {
		refusal = g.try(ctx, r)
	}
	if g.view != nil {
		return g.view.asked(r, refusal)
	}
	return refusal
}

// WouldAllow reports whether the gate would let an operation pass. It writes no row: only an operation that has a row may
// ask.
func (g *Gate) WouldAllow(ctx context.Context, by keyserver.Caller, op keyserver.Operation) bool {
	return g.authorise(ctx, Request{By: by, Op: op}, nil) == nil
}

// decide is what the gate says, also on a gate with a view, where nothing passes.
func (g *Gate) decide(ctx context.Context, r Request, checks []Check) error {
	if err := g.Step(keyserver.StepCurrent, g.Store.Current(ctx)); err != nil {
		return err
	}
	if r.By.Peer != nil {
		return g.authorisePeer(ctx, r, checks)
	}
	who, roles, err := g.resolveSubject(ctx, r.By)
	if err != nil {
		return err
	}
	if r.Own {
		return nil
	}
	if err := g.Step(keyserver.StepLent, lent(r)); err != nil {
		return err
	}
	if refusal := coversOperation(r); refusal != nil {
		return g.Step(keyserver.StepScope, refusal)
	}
	if err := g.Step(keyserver.StepRole, g.granted(ctx, r, roles)); err != nil {
		return err
	}
	if err := g.Step(keyserver.StepScope, coversKey(r)); err != nil {
		return err
	}
	if err := g.Step(keyserver.StepApproval, g.guarded(ctx, r)); err != nil {
		return err
	}
	if _, marks := keyserver.MarkOf(ctx); marks {
		checks = append(slices.Clip(checks), g.AlsoGranted(r.By, keyserver.OpSetOwner))
	}
	for _, c := range checks {
		if err := c(ctx, who); err != nil {
			return err
		}
	}
	return nil
}

// lent refuses to a session that acts for another what is no use of a key.
func lent(r Request) error {
	if r.By.Actor.ID.IsZero() || r.Op.Lent() {
		return nil
	}
	return fault.New(fault.AccessDenied, "%s is not lent: a session that acts for another is good for the use of keys alone; use a session of your own", r.Op.Name).
		Audited(fault.ReasonNotLent)
}

// granted refuses what none of the roles grants.
func (g *Gate) granted(ctx context.Context, r Request, roles []keyserver.ID) error {
	granted, err := g.grants(ctx, roles, r.Op.ID)
	if err != nil || granted {
		return err
	}
	return fault.New(fault.AccessDenied, "no role of %s grants %s", r.By.Name, r.Op.Name).Audited(fault.ReasonRoleDenied)
}

// coversOperation refuses to a scoped credential an operation that it does not name. It
// comes before the question for a role: much of what a session may do needs none, and no
// role would help.
func coversOperation(r Request) error {
	if r.By.CoversOperation(r.Op) {
		return nil
	}
	return fault.New(fault.NotInScope, "the scoped credential is not good for %s; have one made that names the operation, if it may be named", r.Op.Name).
		Audited(fault.ReasonNotInScope)
}

// coversKey refuses to a scoped credential a key that it does not name.
func coversKey(r Request) error {
	if r.By.Scope != nil && !slices.Contains(r.By.Scope, r.Link) {
		return fault.New(fault.NotInScope, "the scoped credential does not cover this; it is good for the keys that it names and for nothing else").
			Audited(fault.ReasonNotInScope)
	}
	return nil
}

// AlsoGranted is the check that a role of the caller grants another operation,
// too: one whose effect is part of what is asked for.
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
		return fault.New(fault.AccessDenied, "no role of %s grants %s, which this takes as well", by.Name, op.Name).Audited(fault.ReasonRoleDenied)
	}
}

// subject reads who the caller is at this moment: its principal, its enabled
// groups, and the roles of both.
func (g *Gate) subject(ctx context.Context, by keyserver.Caller) (access.Subject, []keyserver.ID, error) {
	p, err := g.CachedPrincipal(ctx, by.Principal.ID)
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
		role, err := g.role(ctx, id)
		if errors.Is(err, sqlstore.ErrNotFound) {
			continue
		}
		if err != nil {
			return false, err
		}
		if slices.Contains(role.Operations, op) {
			g.view.by(keyserver.Cause{Kind: keyserver.ChangeRole, ID: role.ID, Name: role.Name})
			return true, nil
		}
	}
	return false, nil
}
