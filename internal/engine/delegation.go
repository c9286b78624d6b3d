package engine

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// DelegateLogin authorizes a session in which the caller acts with the rights of another principal, the delegator, and
// returns the delegator. It returns ACCESS_DENIED or DELEGATOR_REFUSED. The text of DELEGATOR_REFUSED is the same
// whether the delegator does not exist or does not permit the caller. So a caller cannot find out which principals
// exist.
func (e *Engine) DelegateLogin(ctx context.Context, by keyserver.Caller, delegator keyserver.ID) (p keyserver.Principal, err error) {
	err = e.AuthorizeAndAudit(ctx, gate.Request{By: by, Op: keyserver.OpDelegateLogin, Object: delegator.Hex()}, e.unchained(by), func(ctx context.Context, _ access.Subject) error {
		why, err := e.DelegationProblem(ctx, delegator, by.Principal.ID)
		switch {
		case err != nil:
			return err
		case why != "":
			return fault.New(fault.DelegatorRefused, "principalId: not a principal that you may act for; it must exist, be enabled, have the delegation flag, "+
				"list you if it has delegates, and have a valid certificate if it is a transport principal").
				Audited(fault.ReasonDelegator)
		}
		p, err = e.CachedPrincipal(ctx, delegator)
		return err
	})
	return p, err
}

// unchained returns a check that the caller's own session is not delegated.
func (e *Engine) unchained(by keyserver.Caller) gate.Check {
	return func(context.Context, access.Subject) error {
		if by.Actor.ID.IsZero() {
			return nil
		}
		return e.Step(keyserver.StepDelegation, fault.New(fault.AccessDenied, "a delegated session cannot start another one; log in as yourself").
			Audited(fault.ReasonChained))
	}
}
