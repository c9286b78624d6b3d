package session

import (
	"context"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Bounds of a scoped credential.
const (
	// MaxObjects is how many keys one covers at most.
	MaxObjects = 64
	// DefaultScopedLifetime is that of a login which does not say.
	DefaultScopedLifetime = 10 * time.Minute
)

// byScope recognises the caller of another session, for a credential that is
// good for the named keys only. The keys may be another key server's, and need
// not exist: what the credential may do with them is decided when it is used.
func (m *Manager) byScope(ctx context.Context, l Login) (identity, error) {
	if l.parent == nil {
		return identity{}, errNotFromSession
	}
	if err := m.checkScope(l); err != nil {
		return identity{}, err
	}
	lifetime := l.Lifetime
	if lifetime == 0 {
		lifetime = m.ScopedLifetime
	}
	who := m.inherit(l, lifetime)
	who.principal = keyserver.Principal{ID: l.By.Principal.ID, System: l.By.Principal.System, Name: l.By.Name}
	who.scope = l.Objects
	if l.BindTo != "" {
		who.boundKey = l.BindTo
	}
	if l.By.Scope != nil {
		return who, fault.New(fault.NotInScope, "a scoped credential is good for its keys and cannot be the start of another session").
			Audited(fault.ReasonNotInScope)
	}
	return who, m.Authorizer.Standing(ctx, *l.By)
}

// checkScope refuses what is no credential to make, before anything is asked.
func (m *Manager) checkScope(l Login) error {
	seen := map[keyserver.HiddenLink]bool{}
	for _, link := range l.Objects {
		if seen[link] {
			return fault.New(fault.BadRequest, "objects: names a key twice; name each once")
		}
		seen[link] = true
	}
	switch {
	case len(l.Objects) == 0 || len(l.Objects) > MaxObjects:
		return fault.New(fault.BadRequest, "objects: must name 1 to %d keys", MaxObjects)
	case slices.Contains(l.Objects, ""):
		return fault.New(fault.BadRequest, "objects: must not hold an empty hidden link")
	case l.Lifetime < 0 || l.Lifetime > m.Lifetime:
		return fault.New(fault.BadRequest, "lifetimeSeconds: must be from 1 to %d, the lifetime of sessions", int(m.Lifetime.Seconds()))
	case l.proof != nil && l.BindTo != "" && l.BindTo != l.proof.Key:
		return fault.New(fault.BadRequest, "dpopJkt: is the thumbprint of another key than that of the DPoP proof; send one of the two")
	}
	return nil
}
