package session

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// byLDAP identifies an ldap principal by its password in the directory. For a name without a principal, it makes the
// same exchange with a dummy name. Otherwise clients could guess the passwords of all accounts of the directory, and
// lock these accounts.
func (m *Manager) byLDAP(ctx context.Context, l Login) (identity, error) {
	if m.Directory == nil {
		return identity{}, notConfigured(l.Method)
	}
	p, found, err := known(m.Store.PrincipalByName(ctx, keyserver.LDAPPrincipal, l.Name))
	if err != nil {
		return identity{}, err
	}
	if !found || l.Password == "" || len(l.Password) > keyserver.MaxPassword {
		err = m.Directory.CheckDummy(ctx)
		if err == nil {
			err = authenticationFailed(fault.ReasonBadCredentials) // the same error for every result of the dummy check
		}
	} else {
		err = m.Directory.Check(ctx, l.Name, l.Password)
	}
	switch {
	case fault.As(err) != nil:
		return identity{}, err
	case err != nil:
		return identity{}, m.unrecognised(ctx, l, err)
	case p.Flags.Disabled():
		return identity{principal: p}, authenticationFailed(fault.ReasonPrincipalDisabled)
	}
	return identity{principal: p}, nil
}
