package gate

import (
	"context"
	"errors"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// CheckCaller returns an error if every operation of the caller would fail, independent of its roles. Causes are a
// disabled or deleted principal, a certificate that is not in force, and a delegator that no longer permits delegation.
func (g *Gate) CheckCaller(ctx context.Context, by keyserver.Caller) error {
	if err := g.Store.Current(ctx); err != nil {
		return err
	}
	_, _, err := g.resolveSubject(ctx, by)
	return err
}

// resolveSubject does the checks that depend only on the caller. It returns the subject and the current roles of the
// caller.
func (g *Gate) resolveSubject(ctx context.Context, by keyserver.Caller) (access.Subject, []keyserver.ID, error) {
	if err := g.Step(keyserver.StepDelegation, g.delegationInForce(ctx, by)); err != nil {
		return access.Subject{}, nil, err
	}
	who, roles, err := g.subject(ctx, by)
	if err := g.Step(keyserver.StepPrincipal, err); err != nil {
		return access.Subject{}, nil, err
	}
	return who, roles, g.Step(keyserver.StepCertificate, g.certificateInForce(ctx, by))
}

// delegationInForce fails if a delegated session is not valid any more: its acting principal is disabled or deleted, or
// the delegator no longer permits it to act. The gate calls this for each operation.
func (g *Gate) delegationInForce(ctx context.Context, by keyserver.Caller) error {
	if by.Kind != keyserver.DelegatedSession && by.Actor.ID.IsZero() {
		return nil
	}
	actor, err := g.CachedPrincipal(ctx, by.Actor.ID)
	switch {
	case errors.Is(err, sqlstore.ErrNotFound):
		return fault.New(fault.SessionNotFound, "the delegate of the session no longer exists; log in as another principal").Audited(fault.ReasonPrincipalDisabled)
	case err != nil:
		return err
	case actor.Flags.Disabled():
		return fault.New(fault.PrincipalOff, "the delegate %s of the session is disabled; ask an administrator to enable it", actor.Name).Audited(fault.ReasonPrincipalDisabled)
	}
	why, err := g.DelegationProblem(ctx, by.Principal.ID, by.Actor.ID)
	if err != nil || why == "" {
		return err
	}
	return fault.New(fault.DelegatorRefused, "the delegator %s %s; ask an administrator", by.Name, why).Audited(fault.ReasonDelegator)
}

// DelegationProblem returns why actor cannot act for the principal with the given id, or "" if it can. It returns an
// error only if the store fails.
func (g *Gate) DelegationProblem(ctx context.Context, id, actor keyserver.ID) (why string, err error) {
	p, err := g.CachedPrincipal(ctx, id)
	switch {
	case errors.Is(err, sqlstore.ErrNotFound):
		return "no longer exists", nil
	case err != nil:
		return "", err
	case p.Flags.Disabled():
		return "is disabled", nil
	case !p.Flags.Delegation():
		return "does not have the delegation flag", nil
	case len(p.Delegates) > 0 && !slices.Contains(p.Delegates, actor):
		return "has a list of delegates that does not include the delegate of the session", nil
	case p.Type != keyserver.CertificatePrincipal:
		return "", nil
	}
	enrolled, err := g.EnrolledFor(ctx, id)
	if err != nil {
		return "", err
	}
	why = "has no enrolled certificate that is valid now"
	for _, c := range enrolled {
		if !c.ValidAt(g.Clock()) {
			continue
		}
		if good, err := g.acceptedForLogin(ctx, c); good || err != nil {
			return "", err
		}
		why = "has no certificate of a trusted CA that the revocation policy of the CA accepts"
	}
	return why, nil
}

// EnrolledFor is currentCertificates through the cache.
func (g *Gate) EnrolledFor(ctx context.Context, id keyserver.ID) ([]keyserver.Certificate, error) {
	return g.enrolled.Get(ctx, id, func() ([]keyserver.Certificate, error) { return g.currentCertificates(ctx, id) })
}

// currentCertificates reads the certificates of a transport principal that are not replaced,
// without their requests.
func (g *Gate) currentCertificates(ctx context.Context, id keyserver.ID) ([]keyserver.Certificate, error) {
	list, err := g.Store.CertificatesOf(ctx, id, keyserver.MaxCertificates)
	return current(list), err
}

func current(list []keyserver.Certificate) (current []keyserver.Certificate) {
	for _, c := range list {
		if c.Current() {
			c.Request = nil
			current = append(current, c)
		}
	}
	return current
}
