package keys

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/approval"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver/lifecycle"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// serves returns an error if the state of the key does not permit a use. permits is KeyState.Makes or KeyState.Checks.
func (k *cachedKey) serves(permits func(keyserver.KeyState) bool) error {
	if permits(k.life.State) {
		return nil
	}
	return fault.New(fault.KeyDisabled, "the key is %s; ask a key owner", k.life.State).Audited(fault.ReasonKeyDisabled)
}

// ownerCheck returns a check that the link names a key of this key server and that the caller is an owner of the key.
// For an owner, mandatory groups do not apply here. Otherwise owners might be unable to disable a key.
func (ks *Keys) ownerCheck(link keyserver.HiddenLink) gate.Check {
	return func(ctx context.Context, who access.Subject) error {
		if err := ks.Step(keyserver.StepKey, ks.checkLocal(ctx, link)); err != nil {
			return err
		}
		key, err := ks.find(ctx, link, fault.KeyNotFound)
		if err != nil {
			return err
		}
		return ks.ownedOr(keyserver.Owner, key, who)
	}
}

// checkLocal returns an error for a key of a peer: only its own key server can change its state.
func (ks *Keys) checkLocal(ctx context.Context, link keyserver.HiddenLink) error {
	to, foreign := ks.Foreign(link)
	if !foreign {
		return nil
	}
	if _, err := ks.CachedPeer(ctx, to); err != nil {
		return gate.NotFound(err, fault.KeyNotFound, "the system id %d does not belong to this key server or to a registered peer", to)
	}
	return fault.New(fault.InvalidArgument, "the key belongs to the peer %d; change its state and its lineage on that key server", to).
		Audited(fault.ReasonInvalidArgument)
}

// metadata reads the metadata of a key from the store. It does not use a cache, because verified writes depend on it.
func (ks *Keys) metadata(ctx context.Context, id keyserver.ID) (keyserver.KeyMetadata, error) {
	record, err := ks.Store.Key(ctx, id)
	if err != nil {
		return keyserver.KeyMetadata{}, gate.NotFound(err, fault.KeyNotFound, "the hidden link does not identify a key of this key server")
	}
	list, err := ks.metadataOf(ctx, []sqlstore.KeyRecord{record})
	if err != nil {
		return keyserver.KeyMetadata{}, err
	}
	return list[0], nil
}

func (ks *Keys) metadataOf(ctx context.Context, records []sqlstore.KeyRecord) ([]keyserver.KeyMetadata, error) {
	var ids, lines []keyserver.ID
	for _, k := range records {
		ids, lines = append(ids, k.ID), append(lines, k.Life.Lineage)
	}
	uses, err := ks.Store.KeyUses(ctx, ids)
	if err != nil {
		return nil, err
	}
	rotations, err := ks.Store.KeyRotations(ctx, lines)
	if err != nil {
		return nil, err
	}
	list := make([]keyserver.KeyMetadata, len(records))
	for i, k := range records {
		list[i] = ks.metadataOfRecord(k)
		list[i].Uses, list[i].LastUsedAt, list[i].Rotation = uses[k.ID].Uses, uses[k.ID].LastAt, rotations[k.Life.Lineage]
	}
	return list, nil
}

// metadataOfRecord returns the metadata that the database record of a key has.
func (ks *Keys) metadataOfRecord(k sqlstore.KeyRecord) keyserver.KeyMetadata {
	return keyserver.KeyMetadata{
		Link: values.NewHiddenLink(ks.System, k.ID), Algorithm: k.Algorithm, KeyBytes: k.KeyBytes, Life: k.Life, CreatedAt: k.CreatedAt,
	}
}

// KeyState implements keyserver.KeyLives.
func (ks *Keys) KeyState(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink) (meta keyserver.KeyMetadata, err error) {
	r := gate.Request{By: by, Op: keyserver.OpChangeKeyState, Link: link, Object: link.Base64()}
	err = ks.Perform(ctx, r, func() (err error) {
		meta, err = ks.metadata(ctx, idOf(link))
		return err
	}, ks.ownerCheck(link))
	return meta, err
}

// ChangeKeyState implements keyserver.KeyLives.
func (ks *Keys) ChangeKeyState(ctx context.Context, by keyserver.Caller, change keyserver.KeyStateChange) error {
	r := gate.Request{By: by, Op: keyserver.OpChangeKeyState, Link: change.Link, Object: change.Link.Base64() + " " + string(change.Action)}
	if change.Action == keyserver.DestroyKey {
		r.Effect = approval.DestroyKey
	}
	return ks.Perform(ctx, r, func() error {
		return ks.updateLife(ctx, idOf(change.Link), func(life keyserver.KeyLife) (keyserver.KeyLife, error) {
			return lifecycle.Change(life, change, ks.now())
		})
	}, ks.ownerCheck(change.Link))
}

// updateLife changes the life cycle of a key in a transaction. to gets the present life cycle and returns the next one.
func (ks *Keys) updateLife(ctx context.Context, id keyserver.ID, to func(keyserver.KeyLife) (keyserver.KeyLife, error)) error {
	return ks.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		record, err := tx.Key(ctx, id)
		if err != nil {
			return gate.NotFound(err, fault.KeyNotFound, "the hidden link does not identify a key of this key server")
		}
		life, err := to(record.Life)
		if err != nil || life == record.Life {
			return err
		}
		if err := tx.SetKeyLife(ctx, id, life); err != nil {
			return err
		}
		return ks.replan(ctx, tx, life.Lineage)
	})
}

// KeyLineage implements keyserver.KeyLives.
func (ks *Keys) KeyLineage(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink) (line keyserver.KeyLineage, err error) {
	r := gate.Request{By: by, Op: keyserver.OpRotateKey, Link: link, Object: link.Base64()}
	err = gate.PerformOn(ctx, ks.Gate, r, ks.resolveOwnedLineage(link), func(newest target) (err error) {
		line.Newest, err = ks.metadata(ctx, newest.id)
		line.Rotation = line.Newest.Rotation
		return err
	})
	return line, err
}

// RotateKey implements keyserver.KeyLives.
func (ks *Keys) RotateKey(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink) (keyserver.HiddenLink, error) {
	id, err := values.NewID(ks.Random)
	if err != nil {
		return "", err
	}
	successor := values.NewHiddenLink(ks.System, id)
	r := gate.Request{By: by, Op: keyserver.OpRotateKey, Link: link, Object: link.Base64() + " to " + successor.Base64()}
	err = gate.PerformOn(ctx, ks.Gate, r, ks.resolveOwnedLineage(link), func(newest target) error { return ks.mintSuccessor(ctx, newest.id, id) })
	return successor, err
}

// SetKeyRotation implements keyserver.KeyLives.
func (ks *Keys) SetKeyRotation(ctx context.Context, by keyserver.Caller, change keyserver.KeyRotationChange) error {
	r := gate.Request{By: by, Op: keyserver.OpRotateKey, Link: change.Link, Object: fmt.Sprintf("%s every %d verifyOnly %d destroyAfter %d",
		change.Link.Base64(), change.Rotation.Every, change.Rotation.VerifyOnly, change.Rotation.DestroyAfter)}
	return gate.PerformOn(ctx, ks.Gate, r, ks.resolveOwnedLineage(change.Link), func(newest target) error {
		line := newest.life.Lineage
		return ks.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			if change.Rotation.IsZero() {
				return tx.DeleteKeyRotation(ctx, line)
			}
			record, err := tx.Key(ctx, newest.id)
			if err != nil {
				return err
			}
			if _, _, err := lifecycle.Rotate(record.Life, change.Rotation, ks.now()); err != nil {
				return err
			}
			if err := tx.PutKeyRotation(ctx, sqlstore.KeyRotation{Lineage: line, KeyRotation: change.Rotation}); err != nil {
				return err
			}
			return ks.replan(ctx, tx, line)
		})
	})
}

// resolveOwnedLineage returns a Resolver for the newest key of the lineage of the named key. The Resolver makes the
// same checks as ownerCheck, for the newest key.
func (ks *Keys) resolveOwnedLineage(link keyserver.HiddenLink) gate.Resolver[target] {
	return func(ctx context.Context, who access.Subject) (target, error) {
		if err := ks.Step(keyserver.StepKey, ks.checkLocal(ctx, link)); err != nil {
			return target{}, err
		}
		newest, err := ks.newestOf(ctx, link)
		if err != nil {
			return target{}, err
		}
		return target{cachedKey: newest}, ks.ownedOr(keyserver.Owner, newest, who)
	}
}

// newestOf returns the newest key of the lineage of the named key.
func (ks *Keys) newestOf(ctx context.Context, link keyserver.HiddenLink) (*cachedKey, error) {
	named, err := ks.find(ctx, link, fault.KeyNotFound)
	if err != nil {
		return nil, err
	}
	id, err := ks.Store.NewestOfLineage(ctx, named.life.Lineage)
	if err != nil {
		return nil, err
	}
	return ks.find(ctx, values.NewHiddenLink(ks.System, id), fault.KeyNotFound)
}

// mintSuccessor mints the successor of the newest key of a lineage, with the same ACL and the same counted uses. It
// also stores the new life cycle of the former key.
func (ks *Keys) mintSuccessor(ctx context.Context, newest, successor keyserver.ID) error {
	return ks.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		former, acl, err := tx.KeyWithACL(ctx, newest)
		if err != nil {
			return err
		}
		line := former.Life.Lineage
		last, err := tx.NewestOfLineage(ctx, line)
		if err != nil {
			return err
		}
		if last != newest {
			return fault.New(fault.KeyState, "the lineage was rotated at the same time by another request or its schedule; read it before you rotate it again").Audited(fault.ReasonKeyState)
		}
		rotation, err := tx.KeyRotation(ctx, line)
		if err != nil && !errors.Is(err, sqlstore.ErrNotFound) {
			return err
		}
		before, next, err := lifecycle.Rotate(former.Life, rotation.KeyRotation, ks.now())
		if err != nil {
			return err
		}
		if before != former.Life {
			if err := tx.SetKeyLife(ctx, newest, before); err != nil {
				return err
			}
		}
		if err := ks.insertSuccessor(ctx, tx, former, successor, next, acl.Entries); err != nil {
			return err
		}
		return ks.replan(ctx, tx, line)
	})
}

func (ks *Keys) insertSuccessor(ctx context.Context, tx *sqlstore.Tx, former sqlstore.KeyRecord, id keyserver.ID, life keyserver.KeyLife, entries []keyserver.ACLEntry) error {
	material := make([]byte, keyserver.Algorithms[former.Algorithm].MintLen)
	defer clear(material)
	if err := gate.Fill(ks.Random, material); err != nil {
		return err
	}
	wrapped, err := ks.keyring.Wrap(id, ks.System, material)
	if err != nil {
		return fmt.Errorf("wrap the key: %w", err)
	}
	list, err := values.NewID(ks.Random)
	if err != nil {
		return err
	}
	for i := range entries {
		if entries[i].ID, err = values.NewID(ks.Random); err != nil {
			return err
		}
	}
	return tx.InsertKey(ctx, sqlstore.KeyRecord{
		ID: id, Algorithm: former.Algorithm, KeyBytes: len(material), Wrapped: wrapped, ACL: list, CreatedAt: ks.now(), Life: life,
	}, entries...)
}

// replan stores the time of the next change in a lineage that has a rotation.
func (ks *Keys) replan(ctx context.Context, tx *sqlstore.Tx, line keyserver.ID) error {
	rotation, err := tx.KeyRotation(ctx, line)
	if errors.Is(err, sqlstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	keys, err := tx.KeyLineage(ctx, line)
	if err != nil {
		return err
	}
	due := lifecycle.Plan(rotation.KeyRotation, generations(keys), ks.now())
	if rotation.DueAt = due.Next; due.Rotate || len(due.Retire) > 0 {
		rotation.DueAt = ks.now()
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

// supposed returns a key with the current uses of its ACL, and applies the suppositions of the question about the ACL
// and the state.
func (ks *Keys) supposed(ctx context.Context, id keyserver.ID) (key *cachedKey, err error) {
	if key, err = ks.base.readKey(ctx, id); err != nil {
		return key, err
	}
	is := *key
	if is.acl.Entries, err = ks.base.withUses(ctx, key.life.Lineage, key.acl.Entries); err != nil {
		return nil, err
	}
	for _, s := range ks.question.With {
		if cmp.Or(s.Link, ks.question.Link) != is.acl.Link {
			continue
		}
		of := keyserver.PrincipalRef{System: s.System, ID: s.Principal}
		same := func(entry keyserver.ACLEntry) bool { return entry.Principal == of }
		switch s.Kind {
		case keyserver.SupposeEntry:
			is.acl.Entries = append(slices.DeleteFunc(is.acl.Entries, same), keyserver.ACLEntry{
				ACL: is.acl.ID, Principal: of, Rights: s.Rights.Widen(), MaxUsage: s.MaxUsage, Start: s.Start, End: s.End,
			})
		case keyserver.SupposeNoEntry:
			is.acl.Entries = slices.DeleteFunc(is.acl.Entries, same)
		case keyserver.SupposeState:
			if is.life.State != keyserver.KeyDestroyed {
				is.life.State = keyserver.KeyEnabled
			}
		default: // suppositions about other objects
		}
	}
	return &is, nil
}

// DecidingACL returns the ACL that decides on an operation with a key. If the operation names a lineage, this is the
// ACL of the key that the operation would use.
func (ks *Keys) DecidingACL(ctx context.Context, c keyserver.WhoCanQuery) (keyserver.ACL, error) {
	var key *cachedKey
	var err error
	switch c.Operation.ID {
	case keyserver.OpMACData.ID:
		key, err = ks.choose(ctx, keyserver.KeyChoice{Lineage: c.Link}, makeMACs)
	case keyserver.OpRotateKey.ID:
		key, err = ks.newestOf(ctx, c.Link)
	default:
		key, err = ks.find(ctx, c.Link, fault.KeyNotFound)
	}
	if err != nil {
		return keyserver.ACL{}, err
	}
	return key.acl, nil
}
