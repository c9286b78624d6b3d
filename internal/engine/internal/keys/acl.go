package keys

import (
	"context"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// ACL implements keyserver.ACLs. The caller needs READ on the key. ACL reads from the store, not from a cache, because
// verified writes depend on it.
func (ks *Keys) ACL(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink) (keyserver.ACL, error) {
	var acl keyserver.ACL
	r := gate.Request{By: by, Op: keyserver.OpReadACL, Link: link, Object: link.Base64()}
	if to, ok := ks.Foreign(link); ok {
		return ks.forwardACL(ctx, r, to)
	}
	err := ks.Perform(ctx, r, func() (err error) {
		acl, err = ks.Store.ACL(ctx, idOf(link))
		acl.Expired = access.Expired(acl, ks.Clock())
		return gate.NotFound(err, fault.ACLNotFound, "the key has no ACL")
	}, ks.ownerOr(keyserver.Read, link))
	acl.Link = link
	return acl, err
}

// OwnACL implements keyserver.ACLs. The caller learns no more than by a use of the key. OwnACL refuses a key of a peer,
// because peers have no operation that returns a single ACL entry.
func (ks *Keys) OwnACL(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink, own keyserver.PrincipalRef) (keyserver.ACL, error) {
	var acl keyserver.ACL
	r := gate.Request{By: by, Op: keyserver.OpReadACL, Link: link, Object: link.Base64() + " for " + own.String()}
	err := ks.Perform(ctx, r, func() (err error) {
		acl, err = ks.Store.ACL(ctx, idOf(link))
		acl.Entries = slices.DeleteFunc(acl.Entries, func(entry keyserver.ACLEntry) bool { return entry.Principal != own })
		acl.Expired = access.Expired(acl, ks.Clock())
		return gate.NotFound(err, fault.ACLNotFound, "the key has no ACL")
	}, func(ctx context.Context, who access.Subject) error {
		if _, foreign := ks.Foreign(link); foreign || !who.Is(own) {
			return fault.New(fault.ACLDenied, "ACL entry of %s: only that principal may read it without READ on the key; ask a key owner", own).Audited(fault.ReasonACLDenied)
		}
		_, err := ks.find(ctx, link, fault.ACLNotFound)
		return err
	})
	acl.Link = link
	return acl, err
}

// GrantACL implements keyserver.ACLs.
func (ks *Keys) GrantACL(ctx context.Context, by keyserver.Caller, change keyserver.ACLChange) error {
	send := func(at keyserver.Federated, as keyserver.Caller) error { return at.GrantACL(ctx, as, change) }
	return ks.amend(ctx, by, change.Link, change.Principal, send, func(tx *sqlstore.Tx, acl keyserver.ACL) error {
		if err := ks.PrincipalExists(ctx, tx, change.Principal); err != nil {
			return err
		}
		entry, ok := acl.Entry(change.Principal)
		if !ok {
			id, err := values.NewID(ks.Random)
			if err != nil {
				return err
			}
			entry = keyserver.ACLEntry{ID: id, ACL: acl.ID, Principal: change.Principal}
		}
		if err := coversGrant(by, entry.Rights, change.Rights); err != nil {
			return err
		}
		return putEntry(ctx, tx, entry, entry.Rights|change.Rights, change)
	})
}

// AmendACL implements keyserver.ACLs.
func (ks *Keys) AmendACL(ctx context.Context, by keyserver.Caller, change keyserver.ACLChange) error {
	send := func(at keyserver.Federated, as keyserver.Caller) error { return at.AmendACL(ctx, as, change) }
	return ks.amend(ctx, by, change.Link, change.Principal, send, func(tx *sqlstore.Tx, acl keyserver.ACL) error {
		entry, ok := acl.Entry(change.Principal)
		if !ok {
			return noEntry(change.Principal)
		}
		if err := coversGrant(by, entry.Rights, change.Rights); err != nil {
			return err
		}
		return putEntry(ctx, tx, entry, change.Rights, change)
	})
}

// RevokeACL implements keyserver.ACLs.
func (ks *Keys) RevokeACL(ctx context.Context, by keyserver.Caller, r keyserver.ACLRevocation) error {
	send := func(at keyserver.Federated, as keyserver.Caller) error { return at.RevokeACL(ctx, as, r) }
	return ks.amend(ctx, by, r.Link, r.Principal, send, func(tx *sqlstore.Tx, acl keyserver.ACL) error {
		entry, ok := acl.Entry(r.Principal)
		if !ok {
			return noEntry(r.Principal)
		}
		if err := coversGrant(by, entry.Rights, 0); err != nil {
			return err
		}
		return tx.DeleteACLEntry(ctx, acl.ID, r.Principal)
	})
}

// coversGrant refuses a change of an ACL entry unless the caller's scoped credential permits it. from are the rights of
// the entry that the transaction reads, and to are its new rights.
func coversGrant(by keyserver.Caller, from, to keyserver.Rights) error {
	if by.CoversGrant(from, to) {
		return nil
	}
	return beyondCredential(by)
}

func beyondCredential(by keyserver.Caller) error {
	return fault.New(fault.NotInScope, "the scoped credential may grant and revoke only %v, and only on keys of this key server; use a session", by.MayGrant.Names()).
		Audited(fault.ReasonNotInScope)
}

func noEntry(p keyserver.PrincipalRef) error {
	return fault.New(fault.ACLNotFound, "principal %s has no entry on this key", p).Audited(fault.ReasonObjectNotFound)
}

// putEntry writes an ACL entry with widened rights and with the limits of the change. A new usage limit resets the
// number of uses, for all keys of the lineage.
func putEntry(ctx context.Context, tx *sqlstore.Tx, entry keyserver.ACLEntry, rights keyserver.Rights, change keyserver.ACLChange) error {
	restarts := entry.MaxUsage != change.MaxUsage
	if restarts {
		entry.Used = 0
	}
	entry.Rights, entry.MaxUsage, entry.Start, entry.End = rights.Widen(), change.MaxUsage, change.Start, change.End
	if err := tx.PutACLEntry(ctx, entry); err != nil || !restarts || change.MaxUsage == keyserver.NoUsageLimit {
		return err
	}
	return tx.RestartUses(ctx, entry.ID)
}

// amend changes the ACL of a key for an owner of the key. change gets the ACL that the transaction reads. If another
// key server has the key, amend calls send instead.
func (ks *Keys) amend(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink, target keyserver.PrincipalRef,
	send func(keyserver.Federated, keyserver.Caller) error, change func(*sqlstore.Tx, keyserver.ACL) error,
) error {
	r := gate.Request{By: by, Op: keyserver.OpAmendACL, Link: link, Object: link.Base64() + " for " + target.String()}
	if to, ok := ks.Foreign(link); ok {
		if by.Scope != nil { // only the key's own key server knows the current rights of the entry
			return ks.AuthorizeAndAudit(ctx, r, func(context.Context, access.Subject) error {
				return beyondCredential(by)
			})
		}
		return ks.Forward(ctx, r, to, fault.ACLNotFound, send)
	}
	amendment := func(tx *sqlstore.Tx) error {
		acl, err := tx.ACL(ctx, idOf(link))
		if err != nil {
			return gate.NotFound(err, fault.ACLNotFound, "the key has no ACL")
		}
		_, err = ks.RunOnce(ctx, by, tx, func() (bool, error) { return true, change(tx, acl) })
		return err
	}
	if by.Scope != nil { // the transaction checks the scope of the credential
		r.Tries = amendment
	}
	return ks.Perform(ctx, r, func() error { return ks.Store.Update(ctx, amendment) }, func(ctx context.Context, who access.Subject) error {
		refusal := ks.ownerOr(keyserver.Owner, link)(ctx, who)
		if f := fault.As(refusal); f == nil || f.Code != fault.ACLDenied || !who.Is(target) {
			return refusal
		}
		// The change may concern the caller's own entry. If the peer repeats the call, the first call may have removed
		// the right that the call needs.
		if repeated, err := ks.Repeated(ctx, by); err != nil || repeated {
			return err
		}
		return refusal
	})
}

// ownerOr returns a check for work on the ACL itself: the caller must be an owner of the key, or the ACL must grant
// want.
func (ks *Keys) ownerOr(want keyserver.Rights, link keyserver.HiddenLink) gate.Check {
	return func(ctx context.Context, who access.Subject) error {
		key, err := ks.find(ctx, link, fault.ACLNotFound)
		if err != nil {
			return err
		}
		return ks.ownedOr(want, key, who)
	}
}

// ownedOr fails unless the subject is an owner of the key or its ACL grants want. For an owner, mandatory groups do not
// apply here. Otherwise owners could lock themselves out permanently.
func (ks *Keys) ownedOr(want keyserver.Rights, key *cachedKey, who access.Subject) error {
	if access.Owns(key.acl, who, ks.Clock()) {
		return ks.Step(keyserver.StepACL, nil)
	}
	return ks.checkACL(key, who, want)
}

// PrincipalExists returns an error if the principal does not exist. For a principal of a peer, it only checks that the
// peer is registered: an ACL entry for a missing principal grants nothing.
func (ks *Keys) PrincipalExists(ctx context.Context, tx *sqlstore.Tx, p keyserver.PrincipalRef) error {
	var err error
	if p.System == ks.System {
		_, err = tx.Principal(ctx, p.ID)
	} else {
		_, err = tx.TrustedServer(ctx, p.System)
	}
	return gate.NotFound(err, fault.NotFound, "no principal has the systemId %d and the principalId %s", p.System, p.ID.Decimal())
}
