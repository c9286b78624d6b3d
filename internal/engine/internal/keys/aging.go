package keys

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver/lifecycle"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Limits of one call of Age: the number of lineages and of keys, and the duration of the lease.
const (
	agingBatch = 256
	agingLease = time.Minute
)

var _ lifecycle.Keys = (*Keys)(nil)

// Age makes the changes of keys that are due without a request. It rotates lineages, begins the destruction of former
// keys, and destroys keys whose destruction time has come. A lease ensures that only one process does this at a time.
// Each change has its own audit row, and its transaction checks again whether the change is due. If a change fails, Age
// continues with the others.
func (ks *Keys) Age(ctx context.Context) error {
	now := ks.now()
	lines, err := ks.Store.LineagesDue(ctx, now, agingBatch)
	if err != nil {
		return err
	}
	ending, err := ks.Store.KeysEnding(ctx, now, agingBatch)
	if err != nil {
		return err
	}
	if len(lines)+len(ending) > 0 {
		if mine, err := ks.Store.Lease(ctx, sqlstore.LeaseKeyLife, now, agingLease); err != nil || !mine {
			return err
		}
		err = ks.ageAll(ctx, lines, ending)
		err = errors.Join(err, ks.Store.EndLease(context.WithoutCancel(ctx), sqlstore.LeaseKeyLife))
	}
	return errors.Join(err, ks.erase(ctx))
}

func (ks *Keys) ageAll(ctx context.Context, lines, ending []keyserver.ID) error {
	var errs []error
	for _, line := range lines {
		if err := ks.ageLineage(ctx, line); err != nil {
			errs = append(errs, fmt.Errorf("rotate or retire keys of the lineage %s: %w", line, err))
		}
	}
	for _, id := range ending {
		if err := ks.endKey(ctx, id); err != nil {
			errs = append(errs, fmt.Errorf("destroy the key %s: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// ageLineage makes the due changes in a lineage with a rotation, and stores the time of the next change.
func (ks *Keys) ageLineage(ctx context.Context, line keyserver.ID) error {
	rotation, err := ks.Store.KeyRotation(ctx, line)
	if err != nil {
		return gate.UnlessNotFound(err)
	}
	keys, err := ks.Store.KeyLineage(ctx, line)
	if err != nil {
		return err
	}
	due := lifecycle.Plan(rotation.KeyRotation, generations(keys), ks.now())
	for _, former := range due.Retire {
		if err := ks.retire(ctx, former); err != nil {
			return err
		}
	}
	if due.Rotate {
		return ks.rotateBySelf(ctx, keys[len(keys)-1].ID)
	}
	return ks.Store.Update(ctx, func(tx *sqlstore.Tx) error { return ks.replan(ctx, tx, line) })
}

// retire begins the destruction of a former key.
func (ks *Keys) retire(ctx context.Context, former lifecycle.Generation) error {
	return ks.performInternal(ctx, keyserver.OpChangeKeyState, ks.link(former.ID)+" "+string(keyserver.DestroyKey), func() error {
		return ks.updateLife(ctx, former.ID, func(life keyserver.KeyLife) (keyserver.KeyLife, error) {
			if life.State != keyserver.KeyVerifyOnly { // an owner has changed the state
				return life, nil
			}
			return former.Life, nil
		})
	})
}

// rotateBySelf mints the successor of the newest key of a lineage without a request. Either the rotation is due, or the
// key has few or no encryptions left.
func (ks *Keys) rotateBySelf(ctx context.Context, newest keyserver.ID) error {
	successor, err := values.NewID(ks.Random)
	if err != nil {
		return err
	}
	return ks.performInternal(ctx, keyserver.OpRotateKey, ks.link(newest)+" to "+ks.link(successor), func() error {
		return ks.mintSuccessor(ctx, newest, successor)
	})
}

// endKey deletes the bytes of a key that is due for destruction.
func (ks *Keys) endKey(ctx context.Context, id keyserver.ID) error {
	return ks.performInternal(ctx, keyserver.OpChangeKeyState, ks.link(id)+" "+string(keyserver.KeyDestroyed), func() error {
		ks.unerased.Store(true)
		return ks.updateLife(ctx, id, func(life keyserver.KeyLife) (keyserver.KeyLife, error) {
			life, _ = lifecycle.End(life, ks.now())
			return life, nil
		})
	})
}

// erase removes the deleted bytes of keys from the files of the database. If an open read prevents that, the next call
// of Age tries again.
func (ks *Keys) erase(ctx context.Context) error {
	if !ks.unerased.Load() {
		return nil
	}
	done, err := ks.Store.Erase(ctx)
	ks.unerased.Store(!done)
	return err
}

// performInternal writes an audit row for an operation without a request, and then runs effect.
func (ks *Keys) performInternal(ctx context.Context, op keyserver.Operation, object string, effect func() error) error {
	r := gate.Request{By: keyserver.Caller{Kind: keyserver.InternalSession, Principal: keyserver.PrincipalRef{System: ks.System}}, Op: op, Object: object}
	return ks.PerformUnrequested(ctx, r, effect)
}

func (ks *Keys) link(id keyserver.ID) string { return values.NewHiddenLink(ks.System, id).Base64() }

// now returns the time in microseconds, the resolution of the store.
func (ks *Keys) now() time.Time { return ks.Clock().UTC().Truncate(time.Microsecond) }
