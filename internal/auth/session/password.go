package session

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// byPassword identifies a password principal. Unknown names and disabled principals take as much time as a correct
// password.
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
			renewed = m.renew(ctx, p, given, hash) // in the same place of the gate, so that the limit of concurrent hashes applies
		}
		return err
	})
	switch {
	case err != nil:
		return identity{}, err
	case !ok:
		return identity{}, authenticationFailed(fault.ReasonBadCredentials)
	case p.Flags.Disabled():
		return identity{principal: p}, authenticationFailed(fault.ReasonPrincipalDisabled)
	}
	m.throttle.giveBack(ctx, l.attempt) // now, because storing the session may take long
	return identity{principal: p, password: hash, renewed: renewed}, nil
}

// renew returns the hash of a correct password at the configured cost, or "" if the stored hash already has that cost.
// It only logs an error, because the next login tries again.
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

// storeRenewed replaces the outdated hash after a login. Sessions do not end. If another request has changed the stored
// hash since the login, the changed hash stays.
func (m *Manager) storeRenewed(ctx context.Context, who identity) {
	err := m.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		return tx.RenewPasswordHash(ctx, who.principal.ID, who.password, who.renewed)
	})
	if err != nil && !errors.Is(err, sqlstore.ErrNotFound) {
		m.notRenewed(ctx, who.principal, err)
	}
}

func (m *Manager) notRenewed(ctx context.Context, p keyserver.Principal, err error) {
	m.Logger.WarnContext(ctx, "cannot renew a password hash with an outdated cost; the next login tries again", "principal", p.ID.Hex(), "error", err)
}

// stillPassword refuses a session if the password was changed after it was checked. The change has ended all sessions
// that were opened with the old password, so no new one may be opened.
func stillPassword(ctx context.Context, tx *sqlstore.Tx, who identity) error {
	if who.password == "" {
		return nil
	}
	now, err := tx.PasswordHash(ctx, who.principal.ID)
	if errors.Is(err, sqlstore.ErrNotFound) || err == nil && !password.Same(now, who.password) {
		return authenticationFailed(fault.ReasonBadCredentials)
	}
	return err
}
