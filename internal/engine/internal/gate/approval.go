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
// it. With --break-glass, it writes a log line and an audit row instead of failing. escalation.go of the engine checks
// the approval for giving a duty, because only that code knows the duty.
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
		g.view.noteConditionalRules(policy, r)
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

// effect returns the effect of a request, and whether it has one. For an explanation, the question names the effect.
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

// noteConditionalRules writes to the detail of the next step which rules may apply to the request. Some rules guard only some
// requests of the operation, and the question does not say whether its request is among them.
func (v *View) noteConditionalRules(policy approval.Policy, r Request) {
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

// unapproved returns the rule that guards an operation, and whether the caller lacks the approval that the rule
// requires.
func unapproved(policy approval.Policy, by keyserver.Caller, operation string) (approval.Rule, bool) {
	rule, guards := policy.Guards(operation)
	return rule, guards && !slices.Contains(by.Approved, operation)
}

// brokenGlass logs and audits an operation that --break-glass allows without an approval. The operation itself needs an
// approval, or it may give a duty.
func (g *Gate) brokenGlass(ctx context.Context, r Request) error {
	g.Logger.ErrorContext(ctx, "an operation runs without its required approval because of --break-glass; restart without the flag when the emergency is over",
		"operation", r.Op.Key, "object", r.Object, "principal", r.By.Principal.String(), "requestId", r.By.RequestID)
	row := r.row(keyserver.Allowed, "")
	row.Operation, row.Object = keyserver.AuditBreakGlass, r.Op.Key+" "+r.Object
	return g.auditor.Write(ctx, row)
}

// Unchanged returns a check that the objects of the caller's approval have not changed since approval was requested.
// The check must come after the checks that read the objects.
func (g *Gate) Unchanged(by keyserver.Caller) Check {
	return func(ctx context.Context, _ access.Subject) error {
		if by.Approval.IsZero() {
			return nil
		}
		return approval.Unchanged(ctx, g.Store, by.Approval)
	}
}

// DutyApprovalRule returns the rule that requires an approval before the caller may give a duty. It returns nil if the
// caller needs no approval or has one. It reads the policy in the transaction of the write.
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
