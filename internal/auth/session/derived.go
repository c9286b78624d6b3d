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

// Authorizer is the part of the engine's authorizer that sessions need. Only it decides what a principal may do.
type Authorizer interface {
	// DelegateLogin decides whether the caller may act with the rights of the delegator, and makes the audit row of
	// the decision durable. It returns the delegator, or ACCESS_DENIED or DELEGATOR_REFUSED.
	DelegateLogin(ctx context.Context, by keyserver.Caller, delegator keyserver.ID) (keyserver.Principal, error)
	// CheckCaller returns the error that would refuse every operation of the caller, nil for none.
	CheckCaller(ctx context.Context, by keyserver.Caller) error
	// Guard decides whether the caller may perform the operation, makes the audit row of the decision durable, and
	// runs effect.
	Guard(ctx context.Context, by keyserver.Caller, g keyserver.Guarded, effect func() error) error
	// SetPassword authorizes and makes the change, and returns the number of sessions that ended.
	SetPassword(ctx context.Context, by keyserver.Caller, c keyserver.PasswordChange) (int, error)
}

// descend prepares a login that is made from another session.
//
// If the other session is bound to a key, the proof of the request has authenticated the caller and is used up, so it
// cannot bind the new session. If the other session is not bound, the proof is by the key to which the new session will
// be bound.
func (m *Manager) descend(ctx context.Context, l *Login) error {
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

// inherit returns the identity of a session that is made from another. The new session has the same bindings, and ends
// at the latest at the absolute end of the other one.
func (m *Manager) inherit(l Login, lifetime time.Duration) identity {
	who := identity{
		actor: l.parent.Actor, certificate: l.parent.Certificate, boundKey: l.parent.BoundKey, shown: l.parent.BoundCertificate, parent: l.parent.ID,
		expiresAt: m.Clock().Add(lifetime),
	}
	if who.expiresAt.After(l.parent.ExpiresAt) {
		who.expiresAt = l.parent.ExpiresAt
	}
	return who
}

// insert stores a session, unless its parent has ended since it was read: no derived session may remain.
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

// errNotFromSession is returned by methods that need an existing session.
var errNotFromSession = fault.New(fault.SessionNotFound, "method: requires an existing session; send Authorization: Bearer <session id>")
