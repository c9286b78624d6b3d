package session

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
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
	ok, renewed := false, ""
	err = m.inPlace(ctx, l, func() (err error) {
		ok, err = m.PasswordCost.Check(ctx, given, hash)
		if ok && err == nil && !p.Flags.Disabled() {
			renewed = m.renew(ctx, p, given, hash) // in the same place, so that no more is hashed at once
		}
		return err
	})
	switch {
	case err != nil:
		return identity{}, err
	case !ok:
		return identity{}, notRecognised(fault.ReasonBadCredentials)
	case p.Flags.Disabled():
		return identity{principal: p}, notRecognised(fault.ReasonPrincipalDisabled)
	}
	m.throttle.giveBack(ctx, l.attempt) // before the session is stored, which may take long
	return identity{principal: p, password: hash, renewed: renewed}, nil
}

// renew returns the hash of a right password at the configured cost, or nothing if
// hash has that cost. A failure is logged: the next login tries again.
func (m *Manager) renew(ctx context.Context, p keyserver.Principal, given, hash string) string {
	if !m.PasswordCost.Outdated(hash) {
		return ""
	}
	renewed, err := m.PasswordCost.Rehash(ctx, given, hash)
	if err != nil {
		m.notRenewed(ctx, p, err)
		return ""
	}
	return renewed
}

// storeRenewed replaces the outdated hash after a login. Sessions stay. If the
// password has been changed or the hash renewed since it was read, the stored hash
// stays, too.
func (m *Manager) storeRenewed(ctx context.Context, who identity) {
	err := m.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		return tx.RenewPasswordHash(ctx, who.principal.ID, who.password, who.renewed)
	})
	if err != nil && !errors.Is(err, sqlstore.ErrNotFound) {
		m.notRenewed(ctx, who.principal, err)
	}
}

func (m *Manager) notRenewed(ctx context.Context, p keyserver.Principal, err error) {
	m.Logger.WarnContext(ctx, "the password hash has an outdated cost and could not be renewed; the next login tries again", "principal", p.ID.Hex(), "error", err)
}

// stillPassword refuses a session by a password that was changed after it was
// shown: the change has ended all that the old one had opened.
func stillPassword(ctx context.Context, tx *sqlstore.Tx, who identity) error {
	if who.password == "" {
		return nil
	}
	now, err := tx.PasswordHash(ctx, who.principal.ID)
	if errors.Is(err, sqlstore.ErrNotFound) || err == nil && !password.Same(now, who.password) {
		return notRecognised(fault.ReasonBadCredentials)
	}
	return err
}
