package engine

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

// guarded is the gate's question to the approval policy: does a rule guard the
// operation or its effect, and has the caller an approval that satisfies it. What gives a duty
// is asked where it is known what is given (giving.go).
func (e *Engine) guarded(ctx context.Context, r request) error {
	policy, err := e.policies.Get(ctx, e.Deployment, func() (approval.Policy, error) { return approval.Read(ctx, e.Store, e.Deployment) })
	if err != nil {
		return err
	}
	effect, has := e.view.effect(r)
	what := r.op.Name
	rule, needed := unapproved(policy, r.by, r.op.Key)
	if !needed && has {
		what = effect.Name
		rule, needed = unapproved(policy, r.by, effect.Key)
	}
	needed = needed && !e.view.approves()
	if !e.BreakGlass {
		if needed {
			return approval.Required(rule, what)
		}
		e.view.mayTake(policy, r)
		return nil
	}
	if !needed && approval.CanGive([]string{r.op.Key}) {
		_, needed = unapproved(policy, r.by, approval.GiveDuties)
	}
	if !needed || e.view != nil {
		return nil
	}
	return e.brokenGlass(ctx, r)
}

// effect returns the effect of a request. An explained request has the effect that the
// question names.
func (v *view) effect(r request) (keyserver.Operation, bool) {
	key := r.effect
	if v != nil {
		key = v.q.Operation.Key
	}
	i := slices.IndexFunc(keyserver.Effects, func(effect keyserver.Operation) bool { return effect.ID == r.op.ID && effect.Key == key })
	if i < 0 {
		return keyserver.Operation{}, false
	}
	return keyserver.Effects[i], true
}

// mayTake notes, for the step that passes, the rules that guard only some requests of the
// operation. The question does not say whether it is about one of these.
func (v *view) mayTake(policy approval.Policy, r request) {
	if v == nil || v.approves() {
		return
	}
	var some []string
	note := func(rule approval.Rule, what string) {
		some = append(some, fault.As(approval.Required(rule, what)).Detail)
	}
	for _, effect := range keyserver.Effects {
		if rule, needed := unapproved(policy, r.by, effect.Key); needed && effect.ID == r.op.ID {
			note(rule, effect.Name)
		}
	}
	if rule, needed := unapproved(policy, r.by, approval.GiveDuties); needed && approval.CanGive([]string{r.op.Key}) {
		note(rule, "giving an operation of administration, trust or audit")
	}
	v.detail = strings.Join(some, "; ")
}

// unapproved answers the rule for an operation that the caller has no approval for.
func unapproved(policy approval.Policy, by keyserver.Caller, operation string) (approval.Rule, bool) {
	rule, guards := policy.Guards(operation)
	return rule, guards && !slices.Contains(by.Approved, operation)
}

// brokenGlass records that an operation is let through that takes an approval, or
// that may give a duty without one.
func (e *Engine) brokenGlass(ctx context.Context, r request) error {
	e.Logger.ErrorContext(ctx, "an operation is done without the approval that it takes, because of --break-glass; start without the flag as soon as it is over",
		"operation", r.op.Key, "object", r.object, "principal", r.by.Principal.String(), "requestId", r.by.RequestID)
	row := r.row(keyserver.Allowed, "")
	row.Operation, row.Object = keyserver.AuditBreakGlass, r.op.Key+" "+r.object
	return e.Auditor.Write(ctx, row)
}

// unchanged is the check that an approval is about what the checks before it have
// read.
func (e *Engine) unchanged(by keyserver.Caller) check {
	return func(ctx context.Context, _ access.Subject) error {
		if by.Approval.IsZero() {
			return nil
		}
		return approval.Unchanged(ctx, e.Store, by.Approval)
	}
}

// mustAsk answers the rule by which the caller needs an approval to give a duty,
// nil where he needs none. The policy is read in the transaction of the write.
func (e *Engine) mustAsk(ctx context.Context, tx *sqlstore.Tx, by keyserver.Caller) (*approval.Rule, error) {
	policy, err := approval.Read(ctx, tx, e.Deployment)
	if err != nil || e.BreakGlass {
		return nil, err
	}
	rule, needed := unapproved(policy, by, approval.GiveDuties)
	if !needed {
		return nil, nil
	}
	return &rule, nil
}
