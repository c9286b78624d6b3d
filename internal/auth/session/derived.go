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

// Authorizer is the gate of the key server, as far as sessions need it: what a principal may do is decided there and nowhere else.
type Authorizer interface {
	// DelegateLogin decides whether the caller may act with the rights of the
	// delegator, makes the row of that decision durable, and answers the
	// delegator. It answers ACCESS_DENIED or DELEGATOR_REFUSED.
	DelegateLogin(ctx context.Context, by keyserver.Caller, delegator keyserver.ID) (keyserver.Principal, error)
	// Standing answers what every operation of the caller would be refused with,
	// nil for nothing.
	Standing(ctx context.Context, by keyserver.Caller) error
	// Guard decides whether the caller may do what the effect does, makes the row
	// of that decision durable, and runs it.
	Guard(ctx context.Context, by keyserver.Caller, g keyserver.Guarded, effect func() error) error
	// SetPassword decides and does, and answers how many sessions ended.
	SetPassword(ctx context.Context, by keyserver.Caller, c keyserver.PasswordChange) (int, error)
}

// descend prepares a login that is made from a session.
//
// Where that session is bound to a key, the request's proof has shown who calls
// and is used up: it is no proof of another key. Where it is not, a proof is of
// the key that the new session is to be bound to.
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

// inherit is the identity of a session that is made from another: what holds
// that one holds this one, and it does not outlive its absolute end.
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

// insert stores a session, unless the one that it is made from has ended
// meanwhile: nothing made from it may be left.
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

// errNotFromSession is what a method answers that only a session can ask for.
var errNotFromSession = fault.New(fault.SessionNotFound, "the method makes a session from another; send Authorization: Bearer <session id> of that one")
