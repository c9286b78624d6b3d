package session

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// byLDAP recognises an ldap principal by its password in the directory. Names
// that are no principal cost the same exchange with the directory, but about
// nobody: otherwise strangers could try passwords of, and lock, every account
// that the directory has.
func (m *Manager) byLDAP(ctx context.Context, l Login) (identity, error) {
	if m.Directory == nil {
		return identity{}, notConfigured(l.Method)
	}
	p, found, err := known(m.Store.PrincipalByName(ctx, keyserver.LDAPPrincipal, l.Name))
	if err != nil {
		return identity{}, err
	}
	if !found || l.Password == "" || len(l.Password) > keyserver.MaxPassword {
		err = m.Directory.Decoy(ctx)
		if err == nil {
			err = notRecognised(fault.ReasonBadCredentials) // whatever the decoy found
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
		return identity{principal: p}, notRecognised(fault.ReasonPrincipalDisabled)
	}
	return identity{principal: p}, nil
}
