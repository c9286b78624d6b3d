package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// GiveDuties is the name of the rule for every change that gives a principal an operation of a separated duty, by any
// operation.
const GiveDuties = "giveDuties"

// DestroyKey is the name of the rule for starting the destruction of a key. Disabling, enabling and restoring a key
// need the same operation as destruction, but this rule does not guard them.
const DestroyKey = keyserver.EffectDestroyKey

// RuleNames returns the valid values of Rule.Operation: the keys of operations and of effects, and GiveDuties.
func RuleNames() (all []string) {
	for _, op := range slices.Concat(keyserver.Operations, keyserver.Effects) {
		all = append(all, op.Key)
	}
	return append(all, GiveDuties)
}

// dutyGivingOperations are the keys of the operations that can give a principal a duty. The rule GiveDuties may apply
// to a request that needs one of them.
var dutyGivingOperations = []string{
	keyserver.OpCreateRole.Key, keyserver.OpUpdateRole.Key, keyserver.OpCreatePrincipal.Key, keyserver.OpUpdatePrincipalRoles.Key,
	keyserver.OpChangeGroupMembers.Key, keyserver.OpEnrollCertificate.Key, keyserver.OpSetPassword.Key, keyserver.OpDeletePrincipal.Key,
}

// MaxApprovers is the maximum number of approvers in a rule.
const MaxApprovers = 5

// Rule says which principals have to approve an operation.
type Rule struct {
	Operation string         `json:"operation"` // key of an operation, GiveDuties or DestroyKey
	Approvers int            `json:"approvers"` // number of approvers, without the asker
	Duty      keyserver.Duty `json:"duty"`      // that each approver must have
}

// Policy is a set of rules, at most one for an operation.
type Policy []Rule

// Default returns the policy that applies until a policy is set. If duties are separated, one approver suffices: a
// holder of any duty for GiveDuties, and a holder of the duty trust for the other rules. Therefore the two principals
// of a first start are enough.
func Default(d keyserver.Deployment) Policy {
	if d != keyserver.Split {
		return Policy{}
	}
	return Policy{
		{GiveDuties, 1, keyserver.AnyDuty},
		{keyserver.OpExportKey.Key, 1, keyserver.Trust},
		{DestroyKey, 1, keyserver.Trust},
		{keyserver.OpSetApprovalPolicy.Key, 1, keyserver.Trust},
	}
}

// Guards returns the rule for an operation, and whether there is a rule.
func (p Policy) Guards(operation string) (Rule, bool) {
	i := slices.IndexFunc(p, func(r Rule) bool { return r.Operation == operation })
	if i < 0 {
		return Rule{}, false
	}
	return p[i], true
}

// Of returns the rules that may apply to a request. operations are the keys of the operations that the request needs,
// and of its effect if it has one.
func (p Policy) Of(operations []string) []Rule {
	var rules []Rule
	for _, r := range p {
		if slices.Contains(operations, r.Operation) || r.Operation == GiveDuties && CanGive(operations) {
			rules = append(rules, r)
		}
	}
	return rules
}

// CanGive reports whether one of the operations can give a duty.
func CanGive(operations []string) bool {
	return slices.ContainsFunc(operations, func(op string) bool { return slices.Contains(dutyGivingOperations, op) })
}

// Validate returns an error for an invalid policy. askable reports whether approval can be requested for an operation
// or effect.
func (p Policy) Validate(askable func(operation string) bool) error {
	for i, r := range p {
		switch {
		case !slices.Contains(RuleNames(), r.Operation):
			return refusedRule(i, "operation: %q is not an operation; use one of GET /api/operations, %s or %s", r.Operation, GiveDuties, DestroyKey)
		case slices.ContainsFunc(p[:i], func(o Rule) bool { return o.Operation == r.Operation }):
			return refusedRule(i, "operation: another rule already guards %s; an operation must have only one rule", r.Operation)
		case r.Operation != GiveDuties && !askable(r.Operation):
			return refusedRule(i, "operation: no request for %s can be approved, because it streams, waits, always contains a secret, or runs without a request; omit the rule", r.Operation)
		case r.Approvers < 1 || r.Approvers > MaxApprovers:
			return refusedRule(i, "approvers is %d; it must be 1 to %d", r.Approvers, MaxApprovers)
		case !slices.Contains(keyserver.ApprovingDuties, r.Duty):
			return refusedRule(i, "duty is %q; it must be administration, trust, audit or any", r.Duty)
		}
	}
	return nil
}

func refusedRule(i int, format string, args ...any) error {
	return fault.New(fault.InvalidArgument, "rules[%d].%s", i, fmt.Sprintf(format, args...)).Audited(fault.ReasonInvalidArgument)
}

// settings reads the stored approval policy. It is a store or a transaction.
type settings interface {
	ApprovalPolicy(ctx context.Context) ([]byte, error)
}

// Read returns the stored policy, or the default if none is stored.
func Read(ctx context.Context, in settings, d keyserver.Deployment) (Policy, error) {
	text, err := in.ApprovalPolicy(ctx)
	if errors.Is(err, sqlstore.ErrNotFound) {
		return Default(d), nil
	}
	if err != nil {
		return nil, err
	}
	p := Policy{}
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("read the stored approval policy: %w", err)
	}
	return p, nil
}

// Required returns the error for an operation that a rule guards.
func Required(r Rule, what string) error {
	return fault.New(fault.ApprovalRequired, "%s requires the approval of %s (rule %s); request it with POST /api/approvals", what, who(r), r.Operation).
		Audited(fault.ReasonApprovalRequired)
}

func who(r Rule) string {
	duty := "the duty " + string(r.Duty)
	if r.Duty == keyserver.AnyDuty {
		duty = "any of the duties administration, trust and audit"
	}
	if r.Approvers == 1 {
		return "another principal with " + duty
	}
	return fmt.Sprintf("%d other principals with %s", r.Approvers, duty)
}
