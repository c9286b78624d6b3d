package gate

import (
	"context"
	"slices"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/approval"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// guarded fails if a rule of the approval policy guards the operation or its effect, and the caller has no approval for
// it. With --break-glass it records this instead. The approval for giving a duty is checked in escalation.go of the
// engine, because only that code knows the duty.
func (g *Gate) guarded(ctx context.Context, r Request) error {
	policy, err := g.policies.Get(ctx, g.Deployment, func() (approval.Policy, error) { return approval.Read(ctx, g.Store, g.Deployment) })
	if err != nil {
		return err
	}
	effect, has := g.view.effect(r)
	what := r.Op.Name
	rule, needed := unapproved(policy, r.By, r.Op.Key)
	if !needed && has {
		what = effect.Name
		rule, needed = unapproved(policy, r.By, effect.Key)
	}
	needed = needed && !g.view.approves()
	if !g.breakGlass {
		if needed {
			return approval.Required(rule, what)
		}
		g.view.mayTake(policy, r)
		return nil
	}
	if !needed && approval.CanGive([]string{r.Op.Key}) {
		_, needed = unapproved(policy, r.By, approval.GiveDuties)
	}
	if !needed || g.view != nil {
		return nil
	}
	return g.brokenGlass(ctx, r)
}

// effect returns the effect of a request. An explained request has the effect that the
// question names.
func (v *View) effect(r Request) (keyserver.Operation, bool) {
	key := r.Effect
	if v != nil {
		key = v.Question.Operation.Key
	}
	i := slices.IndexFunc(keyserver.Effects, func(effect keyserver.Operation) bool { return effect.ID == r.Op.ID && effect.Key == key })
	if i < 0 {
		return keyserver.Operation{}, false
	}
	return keyserver.Effects[i], true
}

// mayTake records, in the detail of a passed step, the rules that guard only some requests of the operation. The
// question does not say whether its request is one of these.
func (v *View) mayTake(policy approval.Policy, r Request) {
	if v == nil || v.approves() {
		return
	}
	var some []string
	note := func(rule approval.Rule, what string) {
		some = append(some, fault.As(approval.Required(rule, what)).Detail)
	}
	for _, effect := range keyserver.Effects {
		if rule, needed := unapproved(policy, r.By, effect.Key); needed && effect.ID == r.Op.ID {
			note(rule, effect.Name)
		}
	}
	if rule, needed := unapproved(policy, r.By, approval.GiveDuties); needed && approval.CanGive([]string{r.Op.Key}) {
		note(rule, "giving an operation of administration, trust or audit")
	}
	v.detail = strings.Join(some, "; ")
}

// unapproved returns the rule that guards an operation, and whether the caller needs an
// approval that it does not have.
func unapproved(policy approval.Policy, by keyserver.Caller, operation string) (approval.Rule, bool) {
	rule, guards := policy.Guards(operation)
	return rule, guards && !slices.Contains(by.Approved, operation)
}

// brokenGlass logs and audits that --break-glass allows an operation without an approval: an operation that needs an
// approval itself, or one that may give a duty.
func (g *Gate) brokenGlass(ctx context.Context, r Request) error {
	g.Logger.ErrorContext(ctx, "an operation runs without its required approval because of --break-glass; restart without the flag when the emergency is over",
		"operation", r.Op.Key, "object", r.Object, "principal", r.By.Principal.String(), "requestId", r.By.RequestID)
	row := r.row(keyserver.Allowed, "")
	row.Operation, row.Object = keyserver.AuditBreakGlass, r.Op.Key+" "+r.Object
	return g.auditor.Write(ctx, row)
}

// Unchanged returns a check that the object of the caller's approval has not changed since the approval was given. This
// check comes after the checks that read the object.
func (g *Gate) Unchanged(by keyserver.Caller) Check {
	return func(ctx context.Context, _ access.Subject) error {
		if by.Approval.IsZero() {
			return nil
		}
		return approval.Unchanged(ctx, g.Store, by.Approval)
	}
}

// DutyApprovalRule returns the rule that requires an approval of the caller for giving a duty, or nil
// if the caller needs none. It reads the policy in the transaction of the write.
func (g *Gate) DutyApprovalRule(ctx context.Context, tx *sqlstore.Tx, by keyserver.Caller) (*approval.Rule, error) {
	policy, err := approval.Read(ctx, tx, g.Deployment)
	if err != nil || g.breakGlass {
		return nil, err
	}
	rule, needed := unapproved(policy, by, approval.GiveDuties)
	if !needed {
		return nil, nil
	}
	return &rule, nil
}
