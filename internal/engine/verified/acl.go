package verified

import (
	"context"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// ACLResult is the result of the ACL operations. It has the requested rights, and the entry and the ACL as they were
// read back.
type ACLResult struct {
	Operation string            // operation of the key server that was called
	Verified  bool              // the re-read shows the requested change
	Requested *keyserver.Rights // nil for a read or a revocation
	Entry     *keyserver.ACLEntry
	ACL       keyserver.ACL
	Detail    string
}

// ACL reads a key's access control list.
func (s *Service) ACL(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink) (ACLResult, error) {
	if err := requireLink("ttag", link); err != nil {
		return ACLResult{}, err
	}
	acl, err := s.ks.ACL(ctx, by, link)
	if err != nil {
		return ACLResult{}, err
	}
	return ACLResult{Operation: keyserver.OpReadACL.Key, Verified: true, ACL: acl, Detail: "the ACL as the key server stores it"}, nil
}

// GrantACL adds rights to a principal's ACL entry. It verifies that the entry has at least these rights.
func (s *Service) GrantACL(ctx context.Context, by keyserver.Caller, change keyserver.ACLChange) (ACLResult, error) {
	return s.writeACL(ctx, by, change, "grantACL", nil, s.ks.GrantACL)
}

// AmendACL sets an existing ACL entry to exactly the requested rights. The key server widens rights: some rights
// include others. So the entry may have more rights than requested, but only those that widening adds. All other rights
// must be gone.
func (s *Service) AmendACL(ctx context.Context, by keyserver.Caller, change keyserver.ACLChange) (ACLResult, error) {
	exists := func(before keyserver.ACL) error {
		if _, ok := before.Entry(change.Principal); !ok {
			return fault.New(fault.ACLNotFound, "principal %s has no entry on this key to amend; grant one first", change.Principal)
		}
		return nil
	}
	return s.writeACL(ctx, by, change, "amendACL", exists, s.ks.AmendACL)
}

func (s *Service) writeACL(ctx context.Context, by keyserver.Caller, change keyserver.ACLChange, operation string,
	refuse func(keyserver.ACL) error, send func(context.Context, keyserver.Caller, keyserver.ACLChange) error,
) (ACLResult, error) {
	if err := refuseACLChange(change); err != nil {
		return ACLResult{}, err
	}
	exact, own := operation == "amendACL", false
	return verifiedWrite[keyserver.ACL, ACLResult]{
		read:   func(ctx context.Context) (keyserver.ACL, error) { return s.ks.ACL(ctx, by, change.Link) },
		refuse: refuse,
		write:  func(ctx context.Context, _ keyserver.ACL) error { return send(ctx, by, change) },
		reread: s.rereadACL(by, change.Link, change.Principal, &own),
		unread: fault.ReadbackFailed,
		verdict: func(_, after keyserver.ACL) (ACLResult, error) {
			r, err := judgeACL(operation, change, exact, after)
			return r.withOwnEntryNote(own), err
		},
	}.do(ctx)
}

// rereadACL returns the function that reads the ACL after the change. The change may have removed the caller's right to
// read the ACL. In this case the function reads only the changed entry, which belongs to the caller or to its group,
// and sets own.
func (s *Service) rereadACL(by keyserver.Caller, link keyserver.HiddenLink, changed keyserver.PrincipalRef, own *bool) func(context.Context) (keyserver.ACL, error) {
	return func(ctx context.Context) (keyserver.ACL, error) {
		acl, err := s.ks.ACL(ctx, by, link)
		if fault.CodeOf(err) != fault.ACLDenied {
			return acl, err
		}
		acl, err = s.ks.OwnACL(ctx, by, link, changed)
		*own = err == nil
		return acl, err
	}
}

// withOwnEntryNote adds to the detail, if own is set, that the ACL in the result has only the caller's own entry.
func (r ACLResult) withOwnEntryNote(own bool) ACLResult {
	if own {
		r.Detail += "; you may no longer read the ACL, so only this entry was read"
	}
	return r
}

// judgeACL returns the verdict on a grant or, if exact is set, on an amendment.
func judgeACL(operation string, change keyserver.ACLChange, exact bool, after keyserver.ACL) (ACLResult, error) {
	r := ACLResult{Operation: operation, Requested: &change.Rights, ACL: after}
	entry, ok := after.Entry(change.Principal)
	if !ok {
		r.Detail = "the key server accepted the change, but a fresh read of the ACL shows no entry for the principal"
		return r, fault.New(fault.NotVerified, "%s", r.Detail)
	}
	r.Entry = &entry
	switch {
	case !entry.Rights.Has(change.Rights):
		r.Detail = fmt.Sprintf("a fresh read shows the rights %v, not all of the requested %v", entry.Rights.Names(), change.Rights.Names())
	case exact && !change.Rights.Widen().Has(entry.Rights):
		r.Detail = fmt.Sprintf("a fresh read shows the rights %v, more than the requested %v imply", entry.Rights.Names(), change.Rights.Names())
	case entry.MaxUsage != change.MaxUsage || entry.Start != change.Start || entry.End != change.End:
		r.Detail = "a fresh read shows the requested rights, but another maxUsage, startTime or endTime"
	default:
		r.Verified = true
		r.Detail = fmt.Sprintf("a fresh read shows the entry with the rights %v", entry.Rights.Names())
		return r, nil
	}
	return r, fault.New(fault.NotVerified, "%s", r.Detail)
}

// RevokeACL removes a principal's ACL entry and verifies that it is gone.
func (s *Service) RevokeACL(ctx context.Context, by keyserver.Caller, r keyserver.ACLRevocation) (ACLResult, error) {
	if err := requireLink("ttag", r.Link); err != nil {
		return ACLResult{}, err
	}
	if err := requireID("principalId", r.Principal.ID); err != nil {
		return ACLResult{}, err
	}
	var own bool
	return verifiedWrite[keyserver.ACL, ACLResult]{
		read: func(ctx context.Context) (keyserver.ACL, error) { return s.ks.ACL(ctx, by, r.Link) },
		refuse: func(before keyserver.ACL) error {
			if _, ok := before.Entry(r.Principal); !ok {
				return fault.New(fault.ACLNotFound, "principal %s has no entry on this key to revoke", r.Principal)
			}
			return nil
		},
		write:  func(ctx context.Context, _ keyserver.ACL) error { return s.ks.RevokeACL(ctx, by, r) },
		reread: s.rereadACL(by, r.Link, r.Principal, &own),
		unread: fault.ReadbackFailed,
		verdict: func(_, after keyserver.ACL) (ACLResult, error) {
			done := ACLResult{Operation: "revokeACL", ACL: after}
			if entry, still := after.Entry(r.Principal); still {
				done.Entry, done.Detail = &entry, "the key server accepted the revocation, but a fresh read of the ACL still shows the entry"
				return done.withOwnEntryNote(own), fault.New(fault.NotVerified, "%s", done.Detail)
			}
			done.Verified, done.Detail = true, "a fresh read of the ACL shows no entry for the principal"
			return done.withOwnEntryNote(own), nil
		},
	}.do(ctx)
}

func refuseACLChange(change keyserver.ACLChange) error {
	if err := requireLink("ttag", change.Link); err != nil {
		return err
	}
	if err := requireID("principalId", change.Principal.ID); err != nil {
		return err
	}
	if change.Rights == 0 {
		return fault.New(fault.BadRequest, "rights: must name at least one right; revoke the entry to remove them all")
	}
	return refuseEntryTerms(change.Rights, change.MaxUsage, change.Start, change.End)
}

// refuseEntryTerms returns an error for rights and limits that no ACL entry can have.
func refuseEntryTerms(rights keyserver.Rights, maxUsage int64, start, end keyserver.Stamp) error {
	switch {
	case rights&^keyserver.AllRights != 0:
		return fault.New(fault.BadRequest, "rights: must not have a bit above 16 (HOST_MATRIX)")
	case maxUsage < keyserver.NoUsageLimit:
		return fault.New(fault.BadRequest, "maxUsage: must be -1 (no limit), 0 or more; omit it for no limit")
	case !start.IsUnset() && !end.IsUnset() && start.Millis() >= end.Millis():
		return fault.New(fault.BadRequest, "endTime: must be later than startTime")
	}
	return nil
}
