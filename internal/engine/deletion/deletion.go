// Package deletion deletes a principal. It gives the keys and ACL templates of the principal to a new owner, and ends
// all access of the principal. Package engine decides whether the caller may delete it.
package deletion

import (
	"context"
	"io"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// keysAtOnce is the maximum number of keys that one transaction gives to the new owner. No other process can write
// during the transaction.
const keysAtOnce = 200

// Task is the deletion of one principal.
type Task struct {
	Principal keyserver.Principal
	NewOwner  keyserver.PrincipalRef // receives the keys and templates that only the principal owns; zero means no new owner
	At        keyserver.Stamp
	// Random provides the ids of new ACL entries.
	Random io.Reader
}

// Step does one part of the deletion in a transaction. If it reports that the deletion is not over, call Step again in
// a new transaction. Step returns IN_USE if another object needs the principal, or if an object would lose its last
// owner and there is no new owner.
func (e Task) Step(ctx context.Context, tx *sqlstore.Tx) (done keyserver.PrincipalDeletionResult, over bool, err error) {
	if err := e.refuseNeeded(ctx, tx); err != nil {
		return done, false, err
	}
	keys, err := tx.KeysOwnedAlone(ctx, e.Principal.Ref(), e.At, keysAtOnce)
	if err != nil {
		return done, false, err
	}
	if len(keys) > 0 && e.NewOwner.ID.IsZero() {
		return done, false, inUse("no other principal permanently owns key %s; grant OWNER without an endTime to another principal, or set ?heir=ID", keys[0])
	}
	for _, key := range keys {
		if err := e.giveKey(ctx, tx, key); err != nil {
			return done, false, err
		}
	}
	if len(keys) == keysAtOnce {
		return done, false, nil // more keys may follow
	}
	done, err = e.deletePrincipal(ctx, tx)
	return done, err == nil, err
}

// refuseNeeded returns an error if another object needs the principal.
func (e Task) refuseNeeded(ctx context.Context, tx *sqlstore.Tx) error {
	peer, err := tx.PeerOfTransport(ctx, e.Principal.ID)
	if err != nil {
		return err
	}
	if peer != nil {
		return inUse("the principal is the transport principal of the peer %d; remove the peer with DELETE /api/trusted-servers/%d", *peer, *peer)
	}
	return nil
}

// giveKey gives the new owner OWNER on a key, without an end and without a usage limit. The new owner keeps its other
// rights.
func (e Task) giveKey(ctx context.Context, tx *sqlstore.Tx, key keyserver.ID) error {
	acl, err := tx.ACL(ctx, key)
	if err != nil {
		return err
	}
	entry, ok := acl.Entry(e.NewOwner)
	if !ok {
		id, err := values.NewID(e.Random)
		if err != nil {
			return err
		}
		entry = keyserver.ACLEntry{ID: id, ACL: acl.ID, Principal: e.NewOwner}
	}
	entry.Rights = (entry.Rights | keyserver.Owner).Widen()
	entry.MaxUsage, entry.Used = keyserver.NoUsageLimit, 0
	entry.Start, entry.End = keyserver.Stamp{}, keyserver.Stamp{}
	return tx.PutACLEntry(ctx, entry)
}

// deletePrincipal deletes the principal with its sessions, certificates and memberships. It does not delete ACL entries
// of the principal, but ends their time windows. Thus readers of an ACL still see the entry, and a mandatory group
// stays mandatory.
func (e Task) deletePrincipal(ctx context.Context, tx *sqlstore.Tx) (done keyserver.PrincipalDeletionResult, err error) {
	if err := e.leaveTemplates(ctx, tx); err != nil {
		return done, err
	}
	if err := e.removeExposure(ctx, tx); err != nil {
		return done, err
	}
	if done.Entries, err = tx.CloseACLEntries(ctx, e.Principal.Ref(), e.At); err != nil {
		return done, err
	}
	if done.Sessions, err = tx.DeleteSessionsOf(ctx, e.Principal.Ref()); err != nil {
		return done, err
	}
	if _, err = tx.DeleteCertificatesOf(ctx, e.Principal.ID); err != nil {
		return done, err
	}
	return done, tx.DeletePrincipal(ctx, e.Principal.ID)
}

// leaveTemplates removes the principal from its ACL templates. If no other member could change a template, the new
// owner becomes an owner of that template.
func (e Task) leaveTemplates(ctx context.Context, tx *sqlstore.Tx) error {
	memberships, err := tx.ACLTemplateMemberships(ctx, e.Principal.Ref())
	if err != nil {
		return err
	}
	for id, m := range memberships {
		t, err := tx.ACLTemplate(ctx, id)
		if err != nil {
			return err
		}
		if m.Rights&(keyserver.MandatoryGroup|keyserver.HostMatrix) != 0 {
			return inUse("ACL template %q has the principal with MANDATORY_GROUP or HOST_MATRIX; remove it from the template first, or new keys would deny every caller", t.Name)
		}
		orphan := !keyserver.KeepsWriter(t.Without(e.Principal.Ref()))
		if orphan && e.NewOwner.ID.IsZero() {
			return inUse("only the principal can permanently change ACL template %q; add another principal with OWNER and without an endTime, or set ?heir=ID", t.Name)
		}
		if err := tx.DeleteACLTemplateMember(ctx, keyserver.TemplateMemberRef{Template: id, Principal: e.Principal.Ref()}); err != nil {
			return err
		}
		if orphan {
			if err := tx.PutACLTemplateMember(ctx, keyserver.TemplateMembership{Template: id, Member: e.owner(t)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// owner returns the new owner as a member of the template with OWNER, in addition to its existing rights.
func (e Task) owner(t keyserver.ACLTemplate) keyserver.TemplateMember {
	was, _ := t.Member(e.NewOwner)
	return keyserver.TemplateMember{Principal: e.NewOwner, Rights: (was.Rights | keyserver.Owner).Widen(), MaxUsage: keyserver.NoUsageLimit}
}

// removeExposure removes the rows that expose the principal to peers. It keeps rows that restrict the principal,
// because they may concern a principal of the peer with the same id.
func (e Task) removeExposure(ctx context.Context, tx *sqlstore.Tx) error {
	trusts, err := tx.PrincipalTrusts(ctx, keyserver.PrincipalTrustFilter{Principal: &e.Principal.ID})
	for _, t := range trusts {
		if err == nil && t.Flag == keyserver.Expose {
			err = tx.DeletePrincipalTrust(ctx, t.ID)
		}
	}
	return err
}

func inUse(format string, args ...any) error {
	return fault.New(fault.InUse, format, args...).Audited(fault.ReasonInUse)
}
