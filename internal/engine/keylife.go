package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/approval"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver/lifecycle"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// serves is the refusal where the state of a key rules a use out; permits is
// KeyState.Makes or KeyState.Checks.
func (k *heldKey) serves(permits func(keyserver.KeyState) bool) error {
	if permits(k.life.State) {
		return nil
	}
	return fault.New(fault.KeyDisabled, "the key is %s; ask the key's owner", k.life.State).Audited(fault.ReasonKeyDisabled)
}

// leaves is the check, behind the one that finds the key, that it may leave the key
// server.
func (e *Engine) leaves(key **heldKey) gate.Check {
	return func(context.Context, access.Subject) error {
		if (*key).life.Exportable {
			return nil
		}
		return e.Step(keyserver.StepState, fault.New(fault.KeyNotExportable, "the key was minted with exportable false, which is for good; mint another one to have one that may leave").
			Audited(fault.ReasonNotExportable))
	}
}

// owns is the check that the link names a key of this key server and that the caller
// is an owner of it. As for its list, he is not held to mandatory groups, or a key
// could not be withdrawn.
func (e *Engine) owns(link keyserver.HiddenLink, key **heldKey) gate.Check {
	return func(ctx context.Context, who access.Subject) error {
		if err := e.Step(keyserver.StepKey, e.isOurs(ctx, link)); err != nil {
			return err
		}
		if err := e.find(ctx, link, fault.KeyNotFound, key); err != nil {
			return err
		}
		return e.ownedBy(*key, who)
	}
}

func (e *Engine) ownedBy(key *heldKey, who access.Subject) error {
	if access.Owns(key.acl, who, e.Clock()) {
		return e.Step(keyserver.StepList, nil)
	}
	return e.checkACL(key, who, keyserver.Owner)
}

// isOurs refuses a key of a peer: how that one ages is its own key server's affair.
func (e *Engine) isOurs(ctx context.Context, link keyserver.HiddenLink) error {
	to, foreign := e.Foreign(link)
	if !foreign {
		return nil
	}
	if _, err := e.CachedPeer(ctx, to); err != nil {
		return gate.NotFound(err, fault.KeyNotFound, "the system id %d is neither this key server's nor that of a registered peer", to)
	}
	return fault.New(fault.InvalidArgument, "the key belongs to the peer %d; its state and its line are changed there", to).
		Audited(fault.ReasonInvalidArgument)
}

// metadata reads what is told of a key. It comes from the store, not from a cache,
// because verified writes rest on it.
func (e *Engine) metadata(ctx context.Context, id keyserver.ID) (keyserver.KeyMetadata, error) {
	record, err := e.Store.Key(ctx, id)
	if err != nil {
		return keyserver.KeyMetadata{}, gate.NotFound(err, fault.KeyNotFound, "the hidden link names no key of this key server")
	}
	list, err := e.metadataOf(ctx, []sqlstore.KeyRecord{record})
	if err != nil {
		return keyserver.KeyMetadata{}, err
	}
	return list[0], nil
}

func (e *Engine) metadataOf(ctx context.Context, records []sqlstore.KeyRecord) ([]keyserver.KeyMetadata, error) {
	var ids, lines []keyserver.ID
	for _, k := range records {
		ids, lines = append(ids, k.ID), append(lines, k.Life.Lineage)
	}
	uses, err := e.Store.KeyUses(ctx, ids)
	if err != nil {
		return nil, err
	}
	rotations, err := e.Store.KeyRotations(ctx, lines)
	if err != nil {
		return nil, err
	}
	list := make([]keyserver.KeyMetadata, len(records))
	for i, k := range records {
		list[i] = e.told(k)
		list[i].Uses, list[i].LastUsedAt, list[i].Rotation = uses[k.ID].Uses, uses[k.ID].LastAt, rotations[k.Life.Lineage]
	}
	return list, nil
}

// told is what a key itself says of its metadata.
func (e *Engine) told(k sqlstore.KeyRecord) keyserver.KeyMetadata {
	return keyserver.KeyMetadata{
		Link: keyserver.NewHiddenLink(e.System, k.ID), Algorithm: k.Algorithm, KeyBytes: k.KeyBytes, Life: k.Life, CreatedAt: k.CreatedAt,
	}
}

// KeyState implements keyserver.KeyLives.
func (e *Engine) KeyState(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink) (meta keyserver.KeyMetadata, err error) {
	var key *heldKey
	r := gate.Request{By: by, Op: keyserver.OpChangeKeyState, Link: link, Object: link.Base64()}
	err = e.Perform(ctx, r, func() (err error) {
		meta, err = e.metadata(ctx, key.id)
		return err
	}, e.owns(link, &key))
	return meta, err
}

// ChangeKeyState implements keyserver.KeyLives.
func (e *Engine) ChangeKeyState(ctx context.Context, by keyserver.Caller, change keyserver.KeyStateChange) error {
	var key *heldKey
	r := gate.Request{By: by, Op: keyserver.OpChangeKeyState, Link: change.Link, Object: change.Link.Base64() + " " + string(change.Act)}
	if change.Act == keyserver.DestroyKey {
		r.Effect = approval.DestroyKey
	}
	return e.Perform(ctx, r, func() error {
		return e.age(ctx, key.id, func(life keyserver.KeyLife) (keyserver.KeyLife, error) {
			return lifecycle.Change(life, change, e.now())
		})
	}, e.owns(change.Link, &key))
}

// age stores the life that a key comes to, on the one that the transaction sees.
func (e *Engine) age(ctx context.Context, id keyserver.ID, to func(keyserver.KeyLife) (keyserver.KeyLife, error)) error {
	return e.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		record, err := tx.Key(ctx, id)
		if err != nil {
			return gate.NotFound(err, fault.KeyNotFound, "the hidden link names no key of this key server")
		}
		life, err := to(record.Life)
		if err != nil || life == record.Life {
			return err
		}
		if err := tx.SetKeyLife(ctx, id, life); err != nil {
			return err
		}
		return e.replan(ctx, tx, life.Lineage)
	})
}

// KeyLine implements keyserver.KeyLives.
func (e *Engine) KeyLine(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink) (line keyserver.KeyLine, err error) {
	var newest *heldKey
	r := gate.Request{By: by, Op: keyserver.OpRotateKey, Link: link, Object: link.Base64()}
	err = e.Perform(ctx, r, func() (err error) {
		line.Newest, err = e.metadata(ctx, newest.id)
		line.Rotation = line.Newest.Rotation
		return err
	}, e.ownsLine(link, &newest))
	return line, err
}

// RotateKey implements keyserver.KeyLives.
func (e *Engine) RotateKey(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink) (keyserver.HiddenLink, error) {
	id, err := keyserver.NewID(e.Random)
	if err != nil {
		return "", err
	}
	var newest *heldKey
	successor := keyserver.NewHiddenLink(e.System, id)
	r := gate.Request{By: by, Op: keyserver.OpRotateKey, Link: link, Object: link.Base64() + " to " + successor.Base64()}
	err = e.Perform(ctx, r, func() error { return e.succeed(ctx, newest.id, id) }, e.ownsLine(link, &newest))
	return successor, err
}

// SetKeyRotation implements keyserver.KeyLives.
func (e *Engine) SetKeyRotation(ctx context.Context, by keyserver.Caller, change keyserver.KeyRotationChange) error {
	var newest *heldKey
	r := gate.Request{By: by, Op: keyserver.OpRotateKey, Link: change.Link, Object: fmt.Sprintf("%s every %d verifyOnly %d destroyAfter %d",
		change.Link.Base64(), change.Rotation.Every, change.Rotation.VerifyOnly, change.Rotation.DestroyAfter)}
	return e.Perform(ctx, r, func() error {
		line := newest.life.Lineage
		return e.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			if change.Rotation.IsZero() {
				return tx.DeleteKeyRotation(ctx, line)
			}
			record, err := tx.Key(ctx, newest.id)
			if err != nil {
				return err
			}
			if _, _, err := lifecycle.Succeed(record.Life, change.Rotation, e.now()); err != nil {
				return err
			}
			if err := tx.PutKeyRotation(ctx, sqlstore.KeyRotation{Lineage: line, KeyRotation: change.Rotation}); err != nil {
				return err
			}
			return e.replan(ctx, tx, line)
		})
	}, e.ownsLine(change.Link, &newest))
}

// ownsLine is owns for the newest key of the line that the named one is of: that is
// the one which goes on.
func (e *Engine) ownsLine(link keyserver.HiddenLink, newest **heldKey) gate.Check {
	return func(ctx context.Context, who access.Subject) error {
		if err := e.Step(keyserver.StepKey, e.isOurs(ctx, link)); err != nil {
			return err
		}
		if err := e.newestOf(ctx, link, newest); err != nil {
			return err
		}
		return e.ownedBy(*newest, who)
	}
}

// newestOf finds the newest key of the line that the named one is of.
func (e *Engine) newestOf(ctx context.Context, link keyserver.HiddenLink, newest **heldKey) error {
	var named *heldKey
	if err := e.find(ctx, link, fault.KeyNotFound, &named); err != nil {
		return err
	}
	id, err := e.Store.NewestOfLine(ctx, named.life.Lineage)
	if err != nil {
		return err
	}
	return e.find(ctx, keyserver.NewHiddenLink(e.System, id), fault.KeyNotFound, newest)
}

// succeed mints the successor of the newest key of a line, with its list, and stores
// what becomes of the former one. Uses that are spent stay spent.
func (e *Engine) succeed(ctx context.Context, newest, successor keyserver.ID) error {
	return e.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		former, acl, err := tx.KeyWithACL(ctx, newest)
		if err != nil {
			return err
		}
		line := former.Life.Lineage
		last, err := tx.NewestOfLine(ctx, line)
		if err != nil {
			return err
		}
		if last != newest {
			return fault.New(fault.KeyState, "the line got another newest key meanwhile; read it before rotating again").Audited(fault.ReasonKeyState)
		}
		rotation, err := tx.KeyRotation(ctx, line)
		if err != nil && !errors.Is(err, sqlstore.ErrNotFound) {
			return err
		}
		before, next, err := lifecycle.Succeed(former.Life, rotation.KeyRotation, e.now())
		if err != nil {
			return err
		}
		if before != former.Life {
			if err := tx.SetKeyLife(ctx, newest, before); err != nil {
				return err
			}
		}
		if err := e.insertSuccessor(ctx, tx, former, successor, next, acl.Entries); err != nil {
			return err
		}
		return e.replan(ctx, tx, line)
	})
}

func (e *Engine) insertSuccessor(ctx context.Context, tx *sqlstore.Tx, former sqlstore.KeyRecord, id keyserver.ID, life keyserver.KeyLife, entries []keyserver.ACLEntry) error {
	material := make([]byte, keyserver.Algorithms[former.Algorithm].MintLen)
	defer clear(material)
	if err := gate.Fill(e.Random, material); err != nil {
		return err
	}
	wrapped, err := e.Keyring.Wrap(id, e.System, material)
	if err != nil {
		return fmt.Errorf("wrap the key: %w", err)
	}
	list, err := keyserver.NewID(e.Random)
	if err != nil {
		return err
	}
	for i := range entries {
		if entries[i].ID, err = keyserver.NewID(e.Random); err != nil {
			return err
		}
	}
	return tx.InsertKey(ctx, sqlstore.KeyRecord{
		ID: id, Algorithm: former.Algorithm, KeyBytes: len(material), Wrapped: wrapped, ACL: list, CreatedAt: e.now(), Life: life,
	}, entries...)
}

// replan stores when a line wants something done, where a rotation holds for it.
func (e *Engine) replan(ctx context.Context, tx *sqlstore.Tx, line keyserver.ID) error {
	rotation, err := tx.KeyRotation(ctx, line)
	if errors.Is(err, sqlstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	keys, err := tx.KeyLine(ctx, line)
	if err != nil {
		return err
	}
	due := lifecycle.Plan(rotation.KeyRotation, generations(keys), e.now())
	if rotation.DueAt = due.Next; due.Rotate || len(due.Retire) > 0 {
		rotation.DueAt = e.now()
	}
	return tx.PlanKeyRotation(ctx, rotation)
}

func generations(keys []sqlstore.KeyRecord) []lifecycle.Generation {
	line := make([]lifecycle.Generation, len(keys))
	for i, k := range keys {
		line[i] = lifecycle.Generation{ID: k.ID, CreatedAt: k.CreatedAt, Life: k.Life}
	}
	return line
}
