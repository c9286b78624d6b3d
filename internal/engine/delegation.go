package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// DelegateLogin passes the gate for a session in which the caller is to act
// with the rights of another principal, and answers that principal. It answers
// ACCESS_DENIED, or DELEGATOR_REFUSED in the same words whether there is no
// such principal or it may not be acted for: asking must not be a way to find
// out who there is.
func (e *Engine) DelegateLogin(ctx context.Context, by keyserver.Caller, delegator keyserver.ID) (p keyserver.Principal, err error) {
	err = e.authorizeAndAudit(ctx, request{by: by, op: keyserver.OpDelegateLogin, object: delegator.Hex()}, e.unchained(by), func(ctx context.Context, _ access.Subject) error {
		why, err := e.delegatorUnfit(ctx, delegator, by.Principal.ID)
		switch {
		case err != nil:
			return err
		case why != "":
			return fault.New(fault.DelegatorRefused, "principalId names no principal that can be acted for: "+
				"it must be enabled, have the delegation flag, name the caller if it names delegates, and have a certificate in force if it is a transport principal").
				Audited(fault.ReasonDelegator)
		}
		p, err = e.principal(ctx, delegator)
		return err
	})
	return p, err
}

// unchained is the check that nobody begins a delegated session from another.
func (e *Engine) unchained(by keyserver.Caller) check {
	return func(context.Context, access.Subject) error {
		if by.Actor.ID.IsZero() {
			return nil
		}
		return e.step(keyserver.StepDelegation, fault.New(fault.AccessDenied, "a delegated session cannot be the start of another; use a session of your own").
			Audited(fault.ReasonChained))
	}
}

// Standing answers what the gate would refuse every operation of the caller
// with, whichever it is and whatever its roles: a principal that is disabled
// or gone, a certificate that is not in force, a delegator that cannot be
// acted for any more. nil: nothing of the kind.
func (e *Engine) Standing(ctx context.Context, by keyserver.Caller) error {
	if err := e.Store.Current(ctx); err != nil {
		return err
	}
	_, _, err := e.resolveSubject(ctx, by)
	return err
}

// resolveSubject is the part of the gate that depends on the caller alone. It returns the subject and the roles that the
// caller has now.
func (e *Engine) resolveSubject(ctx context.Context, by keyserver.Caller) (access.Subject, []keyserver.ID, error) {
	if err := e.step(keyserver.StepDelegation, e.delegationInForce(ctx, by)); err != nil {
		return access.Subject{}, nil, err
	}
	who, roles, err := e.subject(ctx, by)
	if err := e.step(keyserver.StepPrincipal, err); err != nil {
		return access.Subject{}, nil, err
	}
	return who, roles, e.step(keyserver.StepCertificate, e.certificateInForce(ctx, by))
}

// delegationInForce is the gate's question to a delegated caller: may whoever
// really acts still act, and may the delegator still be acted for. It is asked
// anew for each operation.
func (e *Engine) delegationInForce(ctx context.Context, by keyserver.Caller) error {
	if by.Kind != keyserver.DelegatedSession && by.Actor.ID.IsZero() {
		return nil
	}
	actor, err := e.principal(ctx, by.Actor.ID)
	switch {
	case errors.Is(err, sqlstore.ErrNotFound):
		return fault.New(fault.SessionNotFound, "the principal that acts in the session no longer exists").Audited(fault.ReasonPrincipalDisabled)
	case err != nil:
		return err
	case actor.Flags.Disabled():
		return fault.New(fault.PrincipalOff, "principal %s, which acts in the session, is disabled", actor.Name).Audited(fault.ReasonPrincipalDisabled)
	}
	why, err := e.delegatorUnfit(ctx, by.Principal.ID, by.Actor.ID)
	if err != nil || why == "" {
		return err
	}
	return fault.New(fault.DelegatorRefused, "the delegator %s %s; an administrator has to restore it", by.Name, why).Audited(fault.ReasonDelegator)
}

// delegatorUnfit says why somebody cannot act for a principal; empty: he can. The
// error is of the store.
func (e *Engine) delegatorUnfit(ctx context.Context, id, actor keyserver.ID) (why string, err error) {
	p, err := e.principal(ctx, id)
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
		return "names delegates, and whoever acts in the session is none of them", nil
	case p.Type != keyserver.CertificatePrincipal:
		return "", nil
	}
	enrolled, err := e.enrolledFor(ctx, id)
	if err != nil {
		return "", err
	}
	why = "has no current certificate enrolled"
	for _, c := range enrolled {
		if !c.ValidAt(e.Clock()) {
			continue
		}
		if good, err := e.vouched(ctx, c); good || err != nil {
			return "", err
		}
		why = "has no certificate of a trusted CA that the policy for that CA lets pass"
	}
	return why, nil
}

// enrolledFor reads, through the cache, what currentCertificates does.
func (e *Engine) enrolledFor(ctx context.Context, id keyserver.ID) ([]keyserver.Certificate, error) {
	return e.enrolled.Get(ctx, id, func() ([]keyserver.Certificate, error) { return e.currentCertificates(ctx, id) })
}

// currentCertificates reads what is needed of a transport principal's
// certificates to judge them.
func (e *Engine) currentCertificates(ctx context.Context, id keyserver.ID) ([]keyserver.Certificate, error) {
	list, err := e.Store.CertificatesOf(ctx, id, keyserver.MaxCertificates)
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
