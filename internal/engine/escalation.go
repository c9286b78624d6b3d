package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/approval"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// grantor is a principal that gives operations to another principal.
type grantor struct {
	deployment keyserver.Deployment
	roles      []keyserver.ID // of the principal and of its enabled groups
	operations []keyserver.ID // that these roles grant
	// dutyApprovalRule is the rule that requires an approval before the grantor may give a duty. It is nil if no
	// approval is needed.
	dutyApprovalRule *approval.Rule
}

// firstUngrantable returns the first of the given operations, by id, that the grantor may not give. It has no side effects.
// Rules (contract 4.9): the grantor may give the operations that it has, and any operation if it has Grant Any
// Operation. If duties are separated, the Administrator may give the operations that use keys, although it has none of
// them.
func (g grantor) firstUngrantable(gained []keyserver.ID) (keyserver.Operation, bool) {
	if slices.Contains(g.operations, keyserver.OpGrantAny.ID) {
		return keyserver.Operation{}, false
	}
	for _, id := range keyserver.NormalizeIDs(gained) {
		op := keyserver.OperationOf(id)
		administers := g.deployment == keyserver.Split && slices.Contains(g.roles, keyserver.RoleAdministrator)
		if !slices.Contains(g.operations, id) && (op.Duty != keyserver.KeyUse || !administers) {
			return op, true
		}
	}
	return keyserver.Operation{}, false
}

// refuseUngrantable returns an error if the grantor may not give all of the operations.
func (g grantor) refuseUngrantable(gained []keyserver.ID) error {
	op, withheld := g.firstUngrantable(gained)
	if !withheld {
		return nil
	}
	return fault.New(fault.Escalation, "the change gives %s, which the caller does not hold; ask a principal that holds this operation or %s", op.Name, keyserver.OpGrantAny.Name).
		Audited(fault.ReasonEscalation)
}

// refuseRevocation returns an error if the grantor may not remove the operations. If duties are separated, only the
// Administrator may remove operations that it may not give.
func (g grantor) refuseRevocation(lost []keyserver.ID) error {
	if g.deployment != keyserver.Split || slices.Contains(g.roles, keyserver.RoleAdministrator) {
		return nil
	}
	op, withheld := g.firstUngrantable(lost)
	if !withheld {
		return nil
	}
	return fault.New(fault.Escalation, "the change removes %s, which the caller does not hold; ask an Administrator to make it", op.Name).
		Audited(fault.ReasonEscalation)
}

// refuseUnapproved returns an error if the operations give a duty and the required approval is missing.
func (g grantor) refuseUnapproved(gained []keyserver.ID) error {
	if g.dutyApprovalRule == nil {
		return nil
	}
	for _, id := range keyserver.NormalizeIDs(gained) {
		if op := keyserver.OperationOf(id); op.GivesDuty() {
			return approval.Required(*g.dutyApprovalRule, fmt.Sprintf("giving %s (duty %s)", op.Name, op.Duty))
		}
	}
	return nil
}

// without returns the ids of set that are not in other.
func without(set, other []keyserver.ID) []keyserver.ID {
	return slices.DeleteFunc(slices.Clone(set), func(id keyserver.ID) bool { return slices.Contains(other, id) })
}

// target is the principal or role to which a write gives operations. The two functions read in the transaction of the
// write.
type target struct {
	operations func() ([]keyserver.ID, error)    // of the principal or role itself
	gainers    func() (sqlstore.Holdings, error) // of all principals that get the operations
}

// withEscalationCheck runs a write that may give operations to a principal. It returns an error, which undoes the
// write, if the caller may not give one of the operations, or if a principal would get separated duties. It reads the
// rights before and after the write in the same transaction, so that no other change comes between.
func (e *Engine) withEscalationCheck(ctx context.Context, tx *sqlstore.Tx, by keyserver.Caller, principal keyserver.ID, write func() error) error {
	return e.withTargetEscalationCheck(ctx, tx, by, target{
		operations: func() ([]keyserver.ID, error) { return holds(ctx, tx, principal) },
		gainers:    func() (sqlstore.Holdings, error) { return tx.HoldingsOfMembers(ctx, principal) },
	}, write)
}

// withRoleEscalationCheck is withEscalationCheck for a write that changes a role.
func (e *Engine) withRoleEscalationCheck(ctx context.Context, tx *sqlstore.Tx, by keyserver.Caller, role keyserver.ID, write func() error) error {
	return e.withTargetEscalationCheck(ctx, tx, by, target{
		operations: func() ([]keyserver.ID, error) { return tx.Granted(ctx, []keyserver.ID{role}) },
		gainers:    func() (sqlstore.Holdings, error) { return tx.HoldingsWithRole(ctx, role) },
	}, write)
}

func (e *Engine) withTargetEscalationCheck(ctx context.Context, tx *sqlstore.Tx, by keyserver.Caller, to target, write func() error) error {
	from, err := e.grantor(ctx, tx, by) // before the write, which may change the rights of the caller, too
	if err != nil {
		return err
	}
	before, err := to.operations()
	if err != nil {
		return err
	}
	duties := dutyReader{ctx: ctx, tx: tx, off: e.Deployment != keyserver.Split}
	if err := duties.before(to.gainers); err != nil {
		return err
	}
	if err := write(); err != nil {
		return err
	}
	after, err := to.operations()
	if err != nil {
		return err
	}
	if err := from.refuseUngrantable(without(after, before)); err != nil {
		return err
	}
	if err := from.refuseRevocation(without(before, after)); err != nil {
		return err
	}
	if err := duties.after(to.gainers); err != nil {
		return err
	}
	return from.refuseUnapproved(without(after, before))
}

// mayGiveAll returns an error if the grantor may not give all operations of a principal. It guards changes that let
// another party act as that principal.
func mayGiveAll(ctx context.Context, tx *sqlstore.Tx, from grantor, principal keyserver.ID) error {
	all, err := holds(ctx, tx, principal)
	if err != nil {
		return err
	}
	if err := from.refuseUngrantable(all); err != nil {
		return err
	}
	return from.refuseUnapproved(all)
}

// checkDelegationEscalation returns an error if the caller may not give the delegable operations of a principal. The
// delegation flag gives these operations to delegates.
func (e *Engine) checkDelegationEscalation(ctx context.Context, tx *sqlstore.Tx, by keyserver.Caller, delegator keyserver.ID) error {
	from, err := e.grantor(ctx, tx, by)
	if err != nil {
		return err
	}
	lent, err := holds(ctx, tx, delegator)
	if err != nil {
		return err
	}
	return from.refuseUngrantable(slices.DeleteFunc(lent, func(op keyserver.ID) bool { return !keyserver.OperationOf(op).Delegable() }))
}

// listsPerRead is the number of ACLs that one query reads.
const listsPerRead = 256

// checkKeyEscalation returns an error if a group has rights on keys or ACL templates that the caller may not share: a
// new member gets these rights. The rights of the caller count, not the rights of the member. The check passes if the
// caller has Grant Any Operation or an approval of the request. The group's rights on keys of peers are unknown here.
func (e *Engine) checkKeyEscalation(ctx context.Context, tx *sqlstore.Tx, by keyserver.Caller, group keyserver.ID) error {
	if slices.Contains(by.Approved, approval.GiveDuties) || slices.Contains(by.Approved, keyserver.OpChangeGroupMembers.Key) {
		return nil
	}
	from, err := e.grantor(ctx, tx, by)
	if err != nil || slices.Contains(from.operations, keyserver.OpGrantAny.ID) {
		return err
	}
	who, err := subjectIn(ctx, tx, by.Principal)
	if err != nil {
		return err
	}
	of := keyserver.PrincipalRef{System: e.System, ID: group}
	for after, more := (keyserver.ID{}), true; more; {
		keys, err := tx.KeysWithEntries(ctx, []keyserver.PrincipalRef{of}, after, listsPerRead)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if !access.MayShare(key.List, who, of, e.Clock()) {
				return refuseToShare("a key")
			}
			after = key.ACL
		}
		more = len(keys) == listsPerRead
	}
	memberships, err := tx.ACLTemplateMemberships(ctx, of)
	if err != nil {
		return err
	}
	for id, m := range memberships {
		if !m.Rights.Widen().Has(keyserver.Write) {
			continue // a membership without WRITE gives nothing until a key is created
		}
		t, err := tx.ACLTemplate(ctx, id)
		if err != nil {
			return err
		}
		if !e.mayWrite(who, t) {
			return refuseToShare("an ACL template")
		}
	}
	return nil
}

func refuseToShare(what string) error {
	return fault.New(fault.Escalation, "the group has rights on %s that the caller may not share; ask an owner of it or a holder of %s to add the member, or request approval with POST /api/approvals", what, keyserver.OpGrantAny.Name).
		Audited(fault.ReasonEscalation)
}

// subjectIn reads a principal with its enabled groups in the transaction.
func subjectIn(ctx context.Context, tx *sqlstore.Tx, ref keyserver.PrincipalRef) (access.Subject, error) {
	who := access.Subject{Principal: ref}
	p, err := tx.Principal(ctx, ref.ID)
	if err != nil {
		return who, gate.NotFound(err, fault.SessionNotFound, "the session's principal no longer exists; log in as another one")
	}
	for _, id := range p.Groups {
		g, err := tx.Principal(ctx, id)
		if err != nil {
			return who, err
		}
		if !g.Flags.Disabled() {
			who.Groups = append(who.Groups, g.Ref())
		}
	}
	return who, nil
}

// grantor reads the roles and operations of the caller in the transaction. The caches could be older than the database.
func (e *Engine) grantor(ctx context.Context, tx *sqlstore.Tx, by keyserver.Caller) (grantor, error) {
	g := grantor{deployment: e.Deployment}
	if !by.Approval.IsZero() && tx.NoChanges() { // the objects of the approved request must not have changed
		if err := approval.Unchanged(ctx, tx, by.Approval); err != nil {
			return g, err
		}
	}
	p, err := tx.Principal(ctx, by.Principal.ID)
	if err != nil {
		return g, gate.NotFound(err, fault.SessionNotFound, "the session's principal no longer exists; log in as another one")
	}
	if g.roles, err = tx.RolesInForce(ctx, p); err != nil {
		return g, err
	}
	if g.dutyApprovalRule, err = e.DutyApprovalRule(ctx, tx, by); err != nil {
		return g, err
	}
	g.operations, err = tx.Granted(ctx, g.roles)
	return g, err
}

// holds returns the operations of a principal, including those of its groups.
func holds(ctx context.Context, tx *sqlstore.Tx, principal keyserver.ID) ([]keyserver.ID, error) {
	held, err := tx.HoldingsOf(ctx, principal)
	if err != nil {
		return nil, err
	}
	return tx.Granted(ctx, held[principal])
}
