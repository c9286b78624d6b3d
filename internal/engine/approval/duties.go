package approval

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Policy returns the approval policy.
func (o *Service) Policy(ctx context.Context, by keyserver.Caller) (p Policy, err error) {
	err = o.Gate.Guard(ctx, by, keyserver.ExternalOperation{Operation: keyserver.OpReadApprovals, Object: "policy"}, func() error {
		p, err = Read(ctx, o.Store, o.Deployment)
		return err
	})
	return p, err
}

// SetPolicy replaces the entire policy with p. It returns the policy that it reads back. See Validate for askable.
func (o *Service) SetPolicy(ctx context.Context, by keyserver.Caller, p Policy, askable func(operation string) bool) (saved Policy, err error) {
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	err = o.Gate.Guard(ctx, by, keyserver.ExternalOperation{Operation: keyserver.OpSetApprovalPolicy, Object: string(text)}, func() error {
		if err := p.Validate(askable); err != nil {
			return err
		}
		err := o.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			if err := satisfiable(ctx, tx, p, by.Principal); err != nil {
				return err
			}
			return tx.SetApprovalPolicy(ctx, text)
		})
		if err != nil {
			return err
		}
		saved, err = Read(ctx, o.Store, o.Deployment)
		if err == nil && !slices.Equal(saved, p) {
			err = fault.New(fault.NotSaved, "the policy was stored, but a fresh read shows another one").Audited(fault.ReasonFailed)
		}
		return err
	})
	return saved, err
}

// satisfiable returns an error if a rule requires more approvers than there are now besides the caller. The policy
// could then be changed back only with --break-glass.
func satisfiable(ctx context.Context, tx *sqlstore.Tx, p Policy, by keyserver.PrincipalRef) error {
	if len(p) == 0 {
		return nil
	}
	counts, err := CountDutyHolders(ctx, tx, by.ID)
	if err != nil {
		return err
	}
	for i, r := range p {
		if counts[r.Duty] < r.Approvers {
			return refusedRule(i, "duty: %d enabled principals other than the caller have it, but approvers is %d; give the duty to more principals first", counts[r.Duty], r.Approvers)
		}
	}
	return nil
}

// CountDutyHolders returns the number of enabled principals that have each duty now. The principal except does not count.
func CountDutyHolders(ctx context.Context, tx *sqlstore.Tx, except keyserver.ID) (map[keyserver.Duty]int, error) {
	counts := map[keyserver.Duty]int{}
	roles, err := tx.Roles(ctx)
	if err != nil {
		return nil, err
	}
	seen := map[keyserver.ID]bool{except: true}
	for _, r := range roles {
		if !slices.ContainsFunc(r.Operations, func(id keyserver.ID) bool { return keyserver.OperationOf(id).GivesDuty() }) {
			continue
		}
		holders, err := tx.HoldingsWithRole(ctx, r.ID)
		if err != nil {
			return nil, err
		}
		for id := range holders {
			if seen[id] {
				continue
			}
			seen[id] = true
			if err := countDuties(ctx, tx, id, counts); err != nil {
				return nil, err
			}
		}
	}
	return counts, nil
}

func countDuties(ctx context.Context, tx *sqlstore.Tx, id keyserver.ID, counts map[keyserver.Duty]int) error {
	p, err := tx.Principal(ctx, id)
	if err != nil || p.Type == keyserver.GroupPrincipal {
		return err
	}
	operations, err := operationsOf(ctx, tx, p.Ref())
	if err != nil {
		return err
	}
	for _, d := range keyserver.ApprovingDuties {
		if keyserver.HoldsDuty(operations, d) {
			counts[d]++
		}
	}
	return nil
}
