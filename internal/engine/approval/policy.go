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

// GiveDuties is the rule for every change that gives an operation of the duties
// that are kept apart, by whichever operation it is made.
const GiveDuties = "giveDuties"

// DestroyKey is the rule for beginning the destruction of a key. Disabling, enabling and
// restoring need the same operation and are not guarded by it.
const DestroyKey = keyserver.EffectDestroyKey

// RuleNames returns what a rule can be about: the keys of operations and of effects, and
// GiveDuties.
func RuleNames() (all []string) {
	for _, op := range slices.Concat(keyserver.Operations, keyserver.Effects) {
		all = append(all, op.Key)
	}
	return append(all, GiveDuties)
}

// giving are the operations by which a duty can be given, so that a request which
// needs one of them may need the rule.
var giving = []string{
	keyserver.OpCreateRole.Key, keyserver.OpUpdateRole.Key, keyserver.OpCreatePrincipal.Key, keyserver.OpUpdatePrincipalRoles.Key,
	keyserver.OpChangeGroupMembers.Key, keyserver.OpEnrollCertificate.Key, keyserver.OpSetPassword.Key, keyserver.OpDeletePrincipal.Key,
}

// MaxApprovers is the most that a rule may ask for.
const MaxApprovers = 5

// Rule says who has to approve an operation.
type Rule struct {
	Operation string         `json:"operation"` // its key, GiveDuties or DestroyKey
	Approvers int            `json:"approvers"` // besides whoever asks
	Duty      keyserver.Duty `json:"duty"`      // that each of them has
}

// Policy is a set of rules, at most one for an operation.
type Policy []Rule

// Default is the policy until one is set. Where duties are apart, whoever holds
// one of them approves for another, so that the two principals of the first
// start suffice.
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

// Guards answers the rule for an operation.
func (p Policy) Guards(operation string) (Rule, bool) {
	i := slices.IndexFunc(p, func(r Rule) bool { return r.Operation == operation })
	if i < 0 {
		return Rule{}, false
	}
	return p[i], true
}

// Of answers the rules that a request may need. operations are the keys of what it needs,
// and its effect where it has one.
func (p Policy) Of(operations []string) []Rule {
	var rules []Rule
	for _, r := range p {
		if slices.Contains(operations, r.Operation) || r.Operation == GiveDuties && CanGive(operations) {
			rules = append(rules, r)
		}
	}
	return rules
}

// CanGive reports whether a duty can be given by one of the operations.
func CanGive(operations []string) bool {
	return slices.ContainsFunc(operations, func(op string) bool { return slices.Contains(giving, op) })
}

// Validate refuses a policy that means nothing. askable says whether there is a
// request that needs the operation, or has the effect, and can be asked for.
func (p Policy) Validate(askable func(operation string) bool) error {
	for i, r := range p {
		switch {
		case !slices.Contains(RuleNames(), r.Operation):
			return refusedRule(i, "operation names %q, which is no operation; GET /api/operations lists them, and %s and %s are two more", r.Operation, GiveDuties, DestroyKey)
		case slices.ContainsFunc(p[:i], func(o Rule) bool { return o.Operation == r.Operation }):
			return refusedRule(i, "operation names %s, which another rule is about; an operation has one rule", r.Operation)
		case r.Operation != GiveDuties && !askable(r.Operation):
			return refusedRule(i, "operation names %s, for which no request could be approved: it streams, waits, or is done without one", r.Operation)
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

// settings is a store, or a transaction on it.
type settings interface {
	ApprovalPolicy(ctx context.Context) ([]byte, error)
}

// Read reads the policy.
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

// Required refuses what a rule guards.
func Required(r Rule, what string) error {
	return fault.New(fault.ApprovalRequired, "%s takes the approval of %s (rule %s); ask with POST /api/approvals", what, who(r), r.Operation).
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
