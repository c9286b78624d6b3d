package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver/lifecycle"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Bounds of one pass over what keys want done by themselves.
const (
	agingBatch = 256
	agingLease = time.Minute
)

var _ lifecycle.Keys = (*Engine)(nil)

// Age does what keys want done by themselves by now: lines that are due are rotated,
// former keys retired, and the bytes of those go whose time is over. Of several
// processes one does it; each step has a row of its own, and is decided anew in its
// transaction. What cannot be done keeps nothing else from it.
func (e *Engine) Age(ctx context.Context) error {
	now := e.now()
	lines, err := e.Store.LinesDue(ctx, now, agingBatch)
	if err != nil {
		return err
	}
	ending, err := e.Store.KeysEnding(ctx, now, agingBatch)
	if err != nil {
		return err
	}
	if len(lines)+len(ending) > 0 {
		if mine, err := e.Store.Lease(ctx, sqlstore.LeaseKeyLife, now, agingLease); err != nil || !mine {
			return err
		}
		err = e.ageAll(ctx, lines, ending)
		err = errors.Join(err, e.Store.EndLease(context.WithoutCancel(ctx), sqlstore.LeaseKeyLife))
	}
	return errors.Join(err, e.erase(ctx))
}

func (e *Engine) ageAll(ctx context.Context, lines, ending []keyserver.ID) error {
	var errs []error
	for _, line := range lines {
		if err := e.ageLine(ctx, line); err != nil {
			errs = append(errs, fmt.Errorf("age the line %s: %w", line, err))
		}
	}
	for _, id := range ending {
		if err := e.endKey(ctx, id); err != nil {
			errs = append(errs, fmt.Errorf("destroy the key %s: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// ageLine does what the rotation of a line wants.
func (e *Engine) ageLine(ctx context.Context, line keyserver.ID) error {
	rotation, err := e.Store.KeyRotation(ctx, line)
	if err != nil {
		return gate.UnlessNotFound(err)
	}
	keys, err := e.Store.KeyLine(ctx, line)
	if err != nil {
		return err
	}
	due := lifecycle.Plan(rotation.KeyRotation, generations(keys), e.now())
	for _, former := range due.Retire {
		if err := e.retire(ctx, former); err != nil {
			return err
		}
	}
	if due.Rotate {
		return e.rotateBySelf(ctx, keys[len(keys)-1].ID)
	}
	return e.Store.Update(ctx, func(tx *sqlstore.Tx) error { return e.replan(ctx, tx, line) })
}

// retire begins the destruction of a former key.
func (e *Engine) retire(ctx context.Context, former lifecycle.Generation) error {
	return e.bySelf(ctx, keyserver.OpChangeKeyState, e.link(former.ID)+" "+string(keyserver.DestroyKey), func() error {
		return e.age(ctx, former.ID, func(life keyserver.KeyLife) (keyserver.KeyLife, error) {
			if life.State != keyserver.KeyVerifyOnly { // its owner was faster
				return life, nil
			}
			return former.Life, nil
		})
	})
}

// rotateBySelf succeeds the newest key of a line at nobody's word: because a rotation
// wants it, or because the key may not be used more.
func (e *Engine) rotateBySelf(ctx context.Context, newest keyserver.ID) error {
	successor, err := keyserver.NewID(e.Random)
	if err != nil {
		return err
	}
	return e.bySelf(ctx, keyserver.OpRotateKey, e.link(newest)+" to "+e.link(successor), func() error {
		return e.succeed(ctx, newest, successor)
	})
}

// endKey takes the bytes of a key away whose time is over.
func (e *Engine) endKey(ctx context.Context, id keyserver.ID) error {
	return e.bySelf(ctx, keyserver.OpChangeKeyState, e.link(id)+" "+string(keyserver.KeyDestroyed), func() error {
		e.unerased.Store(true)
		return e.age(ctx, id, func(life keyserver.KeyLife) (keyserver.KeyLife, error) {
			life, _ = lifecycle.End(life, e.now())
			return life, nil
		})
	})
}

// erase makes the bytes that went vanish from the files, too. Where somebody reads
// what was, the next pass tries again.
func (e *Engine) erase(ctx context.Context) error {
	if !e.unerased.Load() {
		return nil
	}
	done, err := e.Store.Erase(ctx)
	e.unerased.Store(!done)
	return err
}

// bySelf does something at nobody's word, behind a row of its own.
func (e *Engine) bySelf(ctx context.Context, op keyserver.Operation, object string, effect func() error) error {
	r := gate.Request{By: keyserver.Caller{Kind: keyserver.InternalSession, Principal: keyserver.PrincipalRef{System: e.System}}, Op: op, Object: object}
	return e.Unasked(ctx, r, effect)
}

func (e *Engine) link(id keyserver.ID) string { return keyserver.NewHiddenLink(e.System, id).Base64() }

// now is the time to the microsecond, as the store keeps it.
func (e *Engine) now() time.Time { return e.Clock().UTC().Truncate(time.Microsecond) }
