package session

import (
	"context"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Bounds of a scoped credential.
const (
	// MaxObjects is the maximum number of keys of one credential.
	MaxObjects = 64
	// DefaultScopedLifetime is the lifetime of a credential if its request has none.
	DefaultScopedLifetime = 10 * time.Minute
)

// byScope identifies the caller of a login that creates a scoped credential for named keys. The keys may belong to
// another key server and need not exist: each use of the credential is authorized separately.
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
	who.scope, who.operations, who.mayGrant = l.Objects, operationsOf(l), l.MayGrant
	if l.BindTo != "" {
		who.boundKey = l.BindTo
	}
	if l.BindTo != "" || l.proof != nil {
		who.boundCertificate = nil // the recipient of the credential uses its own key and no certificate
	}
	if l.By.Scope != nil {
		return who, fault.New(fault.NotInScope, "a scoped credential cannot open another session; log in with other credentials").
			Audited(fault.ReasonNotInScope)
	}
	return who, m.Authorizer.CheckCaller(ctx, *l.By)
}

// operationsOf returns the ids of the requested operations, or of the default operations.
func operationsOf(l Login) []keyserver.ID {
	if l.Operations == nil {
		return keyserver.Caller{}.CredentialOperations()
	}
	ids := []keyserver.ID{}
	for _, op := range keyserver.OfferedOperations {
		if slices.Contains(l.Operations, op.Key) {
			ids = append(ids, op.ID)
		}
	}
	return ids
}

// checkOperations returns an error if a credential cannot have the operations or rights. No credential has OWNER,
// because a principal with OWNER can grant all rights, even to itself.
func checkOperations(l Login) error {
	amends := slices.Contains(l.Operations, keyserver.OpAmendACL.Key)
	for i, name := range l.Operations {
		offered := slices.ContainsFunc(keyserver.OfferedOperations, func(op keyserver.Operation) bool { return op.Key == name })
		if !offered || slices.Contains(l.Operations[:i], name) {
			return fault.New(fault.BadRequest, "operations: must be different operations from this list: "+
				"hmacData, authorizeKey, readKeyMetadata, readACL, macData, verifyMAC, encryptData, decryptData, amendACL")
		}
	}
	switch {
	case l.Operations != nil && len(l.Operations) == 0:
		return fault.New(fault.BadRequest, "operations: must have at least one element; leave it out for the operations that use a key")
	case l.MayGrant.Has(keyserver.Owner):
		return fault.New(fault.BadRequest, "mayGrant: must not contain OWNER; a scoped credential cannot grant it")
	case amends != (l.MayGrant != 0):
		return fault.New(fault.BadRequest, "mayGrant: requires the operation amendACL, and amendACL requires mayGrant; send both or neither")
	}
	return nil
}

// checkScope validates the request for a scoped credential without reading the store.
func (m *Manager) checkScope(l Login) error {
	seen := map[keyserver.HiddenLink]bool{}
	for _, link := range l.Objects {
		if seen[link] {
			return fault.New(fault.BadRequest, "objects: contains a key twice; send each key once")
		}
		seen[link] = true
	}
	if err := checkOperations(l); err != nil {
		return err
	}
	switch {
	case len(l.Objects) == 0 || len(l.Objects) > MaxObjects:
		return fault.New(fault.BadRequest, "objects: must have from 1 to %d keys", MaxObjects)
	case slices.Contains(l.Objects, ""):
		return fault.New(fault.BadRequest, "objects: must not contain an empty hidden link")
	case l.Lifetime < 0 || l.Lifetime > m.Lifetime:
		return fault.New(fault.BadRequest, "lifetimeSeconds: must be from 1 to %d, the lifetime of sessions", int(m.Lifetime.Seconds()))
	case l.proof != nil && l.BindTo != "" && l.BindTo != l.proof.Key:
		return fault.New(fault.BadRequest, "dpopJkt: is not the thumbprint of the key in the DPoP proof; send only one of the two")
	}
	return nil
}
