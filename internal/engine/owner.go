package engine

import (
	"context"
	"errors"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// OwnerMarks implements keyserver.Owners.
func (e *Engine) OwnerMarks(ctx context.Context, by keyserver.Caller, f keyserver.OwnerFilter) (list []keyserver.OwnerMark, err error) {
	object := string(f.Kind)
	if f.ID != nil {
		object = keyserver.Object{Kind: f.Kind, ID: *f.ID}.String()
	}
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpReadOwners, Object: object}, func() (err error) {
		list, err = e.Store.Owners(ctx, f)
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// SetOwner implements keyserver.Owners. It fails if the object does not exist, so an owner mark cannot be set in
// advance.
func (e *Engine) SetOwner(ctx context.Context, by keyserver.Caller, change keyserver.OwnerChange) (keyserver.OwnerMark, error) {
	return e.changeOwner(ctx, by, change.Object, func(tx *sqlstore.Tx, held keyserver.OwnerMark) (keyserver.OwnerMark, error) {
		if err := tx.OwnedObject(ctx, change.Object); err != nil {
			return held, gate.NotFound(err, fault.NotFound, "no %s has the id %s", change.Object.Kind, change.Object.ID)
		}
		switch {
		case !change.Allows(held.Owner):
			return held, ownedBy(held, change.Expect)
		case held.Owner == change.Owner:
			return held, nil
		}
		held.Owner, held.Since = change.Owner, e.Clock().UTC().Truncate(time.Microsecond)
		return held, tx.PutOwner(ctx, held)
	})
}

// ReleaseOwner implements keyserver.Owners.
func (e *Engine) ReleaseOwner(ctx context.Context, by keyserver.Caller, release keyserver.OwnerRelease) (keyserver.OwnerMark, error) {
	return e.changeOwner(ctx, by, release.Object, func(tx *sqlstore.Tx, held keyserver.OwnerMark) (keyserver.OwnerMark, error) {
		switch held.Owner {
		case "":
			return held, fault.New(fault.NotFound, "%s has no owner mark", release.Object).Audited(fault.ReasonObjectNotFound)
		case release.Expect:
			return held, tx.DeleteOwner(ctx, release.Object)
		default:
			return held, ownedBy(held, release.Expect)
		}
	})
}

// changeOwner decides and writes in one transaction. Transactions are serialized, so only one of several concurrent
// requests for a mark succeeds. A refusal also returns the existing mark, or a mark with an empty Owner if there is
// none.
func (e *Engine) changeOwner(ctx context.Context, by keyserver.Caller, o keyserver.Object,
	change func(tx *sqlstore.Tx, held keyserver.OwnerMark) (keyserver.OwnerMark, error),
) (mark keyserver.OwnerMark, err error) {
	err = e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpSetOwner, Object: o.String()}, func() error {
		if !o.Owned() {
			return fault.New(fault.InvalidArgument, "kind: must be a kind with owner marks, not %q", o.Kind).Audited(fault.ReasonInvalidArgument)
		}
		return e.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			held, err := tx.Owner(ctx, o)
			if errors.Is(err, sqlstore.ErrNotFound) {
				held, err = keyserver.OwnerMark{Object: o}, nil
			}
			if err != nil {
				return err
			}
			mark, err = change(tx, held)
			return err
		})
	})
	return mark, err
}

func ownedBy(held keyserver.OwnerMark, expected string) error {
	f := fault.New(fault.Owned, "%s has the owner mark of %q; that owner must release it, or send this owner in expect to replace the mark", held.Object, held.Owner)
	switch {
	case held.Owner == "":
		f = fault.New(fault.Owned, "%s has no owner mark, but expect is %q; omit expect to set a mark", held.Object, expected)
	case expected != "":
		f = fault.New(fault.Owned, "%s has the owner mark of %q, but expect is %q; read the mark before you try again", held.Object, held.Owner, expected)
	}
	return f.Audited(fault.ReasonOwned)
}
