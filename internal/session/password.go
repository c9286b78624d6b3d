package session

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/password"
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore"
)

// byPassword recognises a password principal. Unknown names and disabled
// principals take the work of a right password.
func (m *Manager) byPassword(ctx context.Context, l Login) (identity, error) {
	p, err := m.Store.PrincipalByName(ctx, keyserver.PasswordPrincipal, l.Name)
	hash := ""
	if err == nil {
		hash, err = m.Store.PasswordHash(ctx, p.ID)
	}
	if err != nil && !errors.Is(err, sqlstore.ErrNotFound) {
		return identity{}, err
	}
	given := l.Password
	if len(given) > keyserver.MaxPassword {
		given, hash = "", ""
	}
	leave, err := m.gate.enter(ctx, l)
	if err != nil {
		return identity{}, err
	}
	ok, err := password.Check(ctx, given, hash)
	leave()
	switch {
	case err != nil:
		return identity{}, err
	case !ok:
		return identity{}, notRecognised(fault.ReasonBadCredentials)
	case p.Flags.Disabled():
		return identity{principal: p}, notRecognised(fault.ReasonPrincipalDisabled)
	}
	return identity{principal: p, password: hash}, nil
}

// stillPassword refuses a session by a password that was changed after it was
// shown: the change has ended all that the old one had opened.
func stillPassword(ctx context.Context, tx *sqlstore.Tx, who identity) error {
	if who.password == "" {
		return nil
	}
	now, err := tx.PasswordHash(ctx, who.principal.ID)
	if errors.Is(err, sqlstore.ErrNotFound) || err == nil && now != who.password {
		return notRecognised(fault.ReasonBadCredentials)
	}
	return err
}
