package session

import (
	"context"
	"errors"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sessionrows"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Authorizer is the part of the engine's authorizer that sessions need.
type Authorizer interface {
	// DelegateLogin decides whether the caller may act with the rights of the delegator, and makes the audit row of the
	// decision durable. It returns the delegator, or the error ACCESS_DENIED or DELEGATOR_REFUSED.
	DelegateLogin(ctx context.Context, by keyserver.Caller, delegator keyserver.ID) (keyserver.Principal, error)
	// CheckCaller returns an error if the caller may perform no operation at all, for example because it is disabled.
	CheckCaller(ctx context.Context, by keyserver.Caller) error
	// Guard decides whether the caller may perform the operation, makes the audit row of the decision durable, and
	// runs effect.
	Guard(ctx context.Context, by keyserver.Caller, g keyserver.ExternalOperation, effect func() error) error
	// SetPassword authorizes the change and stores it. It returns the number of sessions that ended.
	SetPassword(ctx context.Context, by keyserver.Caller, c keyserver.PasswordChange) (int, error)
}

// prepareDerived prepares a login that derives a session from the caller's session (the parent).
//
// If the parent is bound to a key, the proof of this request was already used to authenticate the caller. So it cannot
// bind the new session. If the parent is not bound, the new session is bound to the key of the proof.
func (m *Manager) prepareDerived(ctx context.Context, l *Login) error {
	parent, err := m.Store.SessionByID(ctx, l.By.Session)
	if errors.Is(err, sqlstore.ErrNotFound) || err == nil && parent.Ended {
		return errNoSession
	}
	if err != nil {
		return err
	}
	l.parent = &parent
	if parent.BoundKey != "" {
		l.Proof = Proof{}
	}
	return nil
}

// inherit returns the identity of a derived session. The new session has the same bindings as its parent, and does not
// end later than the parent's ExpiresAt.
func (m *Manager) inherit(l Login, lifetime time.Duration) identity {
	who := identity{
		actor: l.parent.Actor, certificate: l.parent.Certificate, boundKey: l.parent.BoundKey, boundCertificate: l.parent.BoundCertificate, parent: l.parent.ID,
		expiresAt: m.Clock().Add(lifetime),
	}
	if who.expiresAt.After(l.parent.ExpiresAt) {
		who.expiresAt = l.parent.ExpiresAt
	}
	return who
}

// insert stores a session. It fails if the parent has ended since it was read, because a derived session must not
// outlive its parent.
func insert(ctx context.Context, tx *sqlstore.Tx, record sessionrows.SessionRecord) error {
	if !record.Parent.IsZero() {
		parent, err := tx.SessionByID(ctx, record.Parent)
		if errors.Is(err, sqlstore.ErrNotFound) || err == nil && parent.Ended {
			return errNoSession
		}
		if err != nil {
			return err
		}
	}
	if err := mayOpen(ctx, tx, record); err != nil {
		return err
	}
	return tx.InsertSession(ctx, record)
}

// errNotFromSession is the error of login methods that need an existing session.
var errNotFromSession = fault.New(fault.SessionNotFound, "method: requires an existing session; send Authorization: Bearer <session id>")
