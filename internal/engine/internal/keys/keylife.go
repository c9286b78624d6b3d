package keys

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

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
func (ks *Keys) leaves(key **heldKey) gate.Check {
	return func(context.Context, access.Subject) error {
		if (*key).life.Exportable {
			return nil
		}
		return ks.Step(keyserver.StepState, fault.New(fault.KeyNotExportable, "the key was minted with exportable false, which is for good; mint another one to have one that may leave").
			Audited(fault.ReasonNotExportable))
	}
}

// owns is the check that the link names a key of this key server and that the caller
// is an owner of it. As for its list, he is not held to mandatory groups, or a key
// could not be withdrawn.
func (ks *Keys) owns(link keyserver.HiddenLink, key **heldKey) gate.Check {
	return func(ctx context.Context, who access.Subject) error {
		if err := ks.Step(keyserver.StepKey, ks.isOurs(ctx, link)); err != nil {
			return err
		}
		if err := ks.find(ctx, link, fault.KeyNotFound, key); err != nil {
			return err
		}
		return ks.ownedBy(*key, who)
	}
}

func (ks *Keys) ownedBy(key *heldKey, who access.Subject) error {
	if access.Owns(key.acl, who, ks.Clock()) {
		return ks.Step(keyserver.StepList, nil)
	}
	return ks.checkACL(key, who, keyserver.Owner)
}

// isOurs refuses a key of a peer: how that one ages is its own key server's affair.
func (ks *Keys) isOurs(ctx context.Context, link keyserver.HiddenLink) error {
	to, foreign := ks.Foreign(link)
	if !foreign {
		return nil
	}
	if _, err := ks.CachedPeer(ctx, to); err != nil {
		return gate.NotFound(err, fault.KeyNotFound, "the system id %d is neither this key server's nor that of a registered peer", to)
	}
	return fault.New(fault.InvalidArgument, "the key belongs to the peer %d; its state and its line are changed there", to).
		Audited(fault.ReasonInvalidArgument)
}

// metadata reads what is told of a key. It comes from the store, not from a cache,
// because verified writes rest on it.
func (ks *Keys) metadata(ctx context.Context, id keyserver.ID) (keyserver.KeyMetadata, error) {
	record, err := ks.Store.Key(ctx, id)
	if err != nil {
		return keyserver.KeyMetadata{}, gate.NotFound(err, fault.KeyNotFound, "the hidden link names no key of this key server")
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
		list[i] = ks.told(k)
		list[i].Uses, list[i].LastUsedAt, list[i].Rotation = uses[k.ID].Uses, uses[k.ID].LastAt, rotations[k.Life.Lineage]
	}
	return list, nil
}

// told is what a key itself says of its metadata.
func (ks *Keys) told(k sqlstore.KeyRecord) keyserver.KeyMetadata {
	return keyserver.KeyMetadata{
		Link: keyserver.NewHiddenLink(ks.System, k.ID), Algorithm: k.Algorithm, KeyBytes: k.KeyBytes, Life: k.Life, CreatedAt: k.CreatedAt,
	}
}

// KeyState implements keyserver.KeyLives.
func (ks *Keys) KeyState(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink) (meta keyserver.KeyMetadata, err error) {
	var key *heldKey
	r := gate.Request{By: by, Op: keyserver.OpChangeKeyState, Link: link, Object: link.Base64()}
	err = ks.Perform(ctx, r, func() (err error) {
		meta, err = ks.metadata(ctx, key.id)
		return err
	}, ks.owns(link, &key))
	return meta, err
}

// ChangeKeyState implements keyserver.KeyLives.
func (ks *Keys) ChangeKeyState(ctx context.Context, by keyserver.Caller, change keyserver.KeyStateChange) error {
	var key *heldKey
	r := gate.Request{By: by, Op: keyserver.OpChangeKeyState, Link: change.Link, Object: change.Link.Base64() + " " + string(change.Act)}
	if change.Act == keyserver.DestroyKey {
		r.Effect = approval.DestroyKey
	}
	return ks.Perform(ctx, r, func() error {
		return ks.age(ctx, key.id, func(life keyserver.KeyLife) (keyserver.KeyLife, error) {
			return lifecycle.Change(life, change, ks.now())
		})
	}, ks.owns(change.Link, &key))
}

// age stores the life that a key comes to, on the one that the transaction sees.
func (ks *Keys) age(ctx context.Context, id keyserver.ID, to func(keyserver.KeyLife) (keyserver.KeyLife, error)) error {
	return ks.Store.Update(ctx, func(tx *sqlstore.Tx) error {
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
		return ks.replan(ctx, tx, life.Lineage)
	})
}

// KeyLine implements keyserver.KeyLives.
func (ks *Keys) KeyLine(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink) (line keyserver.KeyLine, err error) {
	var newest *heldKey
	r := gate.Request{By: by, Op: keyserver.OpRotateKey, Link: link, Object: link.Base64()}
	err = ks.Perform(ctx, r, func() (err error) {
		line.Newest, err = ks.metadata(ctx, newest.id)
		line.Rotation = line.Newest.Rotation
		return err
	}, ks.ownsLine(link, &newest))
	return line, err
}

// RotateKey implements keyserver.KeyLives.
func (ks *Keys) RotateKey(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink) (keyserver.HiddenLink, error) {
	id, err := keyserver.NewID(ks.Random)
	if err != nil {
		return "", err
	}
	var newest *heldKey
	successor := keyserver.NewHiddenLink(ks.System, id)
	r := gate.Request{By: by, Op: keyserver.OpRotateKey, Link: link, Object: link.Base64() + " to " + successor.Base64()}
	err = ks.Perform(ctx, r, func() error { return ks.succeed(ctx, newest.id, id) }, ks.ownsLine(link, &newest))
	return successor, err
}

// SetKeyRotation implements keyserver.KeyLives.
func (ks *Keys) SetKeyRotation(ctx context.Context, by keyserver.Caller, change keyserver.KeyRotationChange) error {
	var newest *heldKey
	r := gate.Request{By: by, Op: keyserver.OpRotateKey, Link: change.Link, Object: fmt.Sprintf("%s every %d verifyOnly %d destroyAfter %d",
		change.Link.Base64(), change.Rotation.Every, change.Rotation.VerifyOnly, change.Rotation.DestroyAfter)}
	return ks.Perform(ctx, r, func() error {
		line := newest.life.Lineage
		return ks.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			if change.Rotation.IsZero() {
				return tx.DeleteKeyRotation(ctx, line)
			}
			record, err := tx.Key(ctx, newest.id)
			if err != nil {
				return err
			}
			if _, _, err := lifecycle.Succeed(record.Life, change.Rotation, ks.now()); err != nil {
				return err
			}
			if err := tx.PutKeyRotation(ctx, sqlstore.KeyRotation{Lineage: line, KeyRotation: change.Rotation}); err != nil {
				return err
			}
			return ks.replan(ctx, tx, line)
		})
	}, ks.ownsLine(change.Link, &newest))
}

// ownsLine is owns for the newest key of the line that the named one is of: that is
// the one which goes on.
func (ks *Keys) ownsLine(link keyserver.HiddenLink, newest **heldKey) gate.Check {
	return func(ctx context.Context, who access.Subject) error {
		if err := ks.Step(keyserver.StepKey, ks.isOurs(ctx, link)); err != nil {
			return err
		}
		if err := ks.newestOf(ctx, link, newest); err != nil {
			return err
		}
		return ks.ownedBy(*newest, who)
	}
}

// newestOf finds the newest key of the line that the named one is of.
func (ks *Keys) newestOf(ctx context.Context, link keyserver.HiddenLink, newest **heldKey) error {
	var named *heldKey
	if err := ks.find(ctx, link, fault.KeyNotFound, &named); err != nil {
		return err
	}
	id, err := ks.Store.NewestOfLine(ctx, named.life.Lineage)
	if err != nil {
		return err
	}
	return ks.find(ctx, keyserver.NewHiddenLink(ks.System, id), fault.KeyNotFound, newest)
}

// succeed mints the successor of the newest key of a line, with its list, and stores
// what becomes of the former one. Uses that are spent stay spent.
func (ks *Keys) succeed(ctx context.Context, newest, successor keyserver.ID) error {
	return ks.Store.Update(ctx, func(tx *sqlstore.Tx) error {
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
		before, next, err := lifecycle.Succeed(former.Life, rotation.KeyRotation, ks.now())
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
	list, err := keyserver.NewID(ks.Random)
	if err != nil {
		return err
	}
	for i := range entries {
		if entries[i].ID, err = keyserver.NewID(ks.Random); err != nil {
			return err
		}
	}
	return tx.InsertKey(ctx, sqlstore.KeyRecord{
		ID: id, Algorithm: former.Algorithm, KeyBytes: len(material), Wrapped: wrapped, ACL: list, CreatedAt: ks.now(), Life: life,
	}, entries...)
}

// replan stores when a line wants something done, where a rotation holds for it.
func (ks *Keys) replan(ctx context.Context, tx *sqlstore.Tx, line keyserver.ID) error {
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

// supposed is a key with the uses of its list that are spent by now, and with what is supposed
// of its list and its state.
func (ks *Keys) supposed(ctx context.Context, id keyserver.ID) (key *heldKey, err error) {
	if key, err = ks.behind.held(ctx, id); err != nil {
		return key, err
	}
	is := *key
	if is.acl.Entries, err = ks.behind.withUses(ctx, key.life.Lineage, key.acl.Entries); err != nil {
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
		default: // of something else
		}
	}
	return &is, nil
}

// AskedACL returns the ACL that decides on an operation with a key. If the key is named by its line, that is the ACL of
// another key of the line.
func (ks *Keys) AskedACL(ctx context.Context, c keyserver.Crowd) (keyserver.ACL, error) {
	var key *heldKey
	var err error
	switch c.Operation.ID {
	case keyserver.OpMACData.ID:
		key, err = ks.choose(ctx, keyserver.KeyChoice{Line: c.Link}, makeMACs)
	case keyserver.OpRotateKey.ID:
		err = ks.newestOf(ctx, c.Link, &key)
	default:
		err = ks.find(ctx, c.Link, fault.KeyNotFound, &key)
	}
	if err != nil {
		return keyserver.ACL{}, err
	}
	return key.acl, nil
}
