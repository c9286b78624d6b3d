package session

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// byDelegator checks that the caller may act with the rights of the delegator. The audit row of the login contains both
// principals.
func (m *Manager) byDelegator(ctx context.Context, l Login) (identity, error) {
	if l.parent == nil {
		return identity{}, errNotFromSession
	}
	who := m.inherit(l, m.Lifetime)
	who.actor = l.By.Principal
	who.principal = keyserver.Principal{ID: l.Delegator, System: m.System, Name: l.Delegator.Hex()}
	delegator, err := m.Authorizer.DelegateLogin(ctx, *l.By, l.Delegator)
	if err != nil {
		return who, err
	}
	who.principal = delegator
	return who, nil
}
