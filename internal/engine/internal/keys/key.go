package keys

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ciphertext"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// cachedKey is a key in the cache: its ACL, its state and keyed hash states, but not its bytes.
type cachedKey struct {
	id        keyserver.ID
	algorithm keyserver.Algorithm
	keyBytes  int
	acl       keyserver.ACL
	life      keyserver.KeyLife
	macs      *macs            // nil if the state of the key allows no use
	aead      *ciphertext.AEAD // nil unless the key is an AES-256 key
}

// target is the key of an operation, as a check has found it.
type target struct {
	*cachedKey
	keys *Keys
	// limited are the ACL entries with a usage limit, if only such entries allow the use. Count counts the use on one
	// of them. limited is empty if the use need not be counted.
	limited []keyserver.ACLEntry
}

// Link implements gate.Target.
func (t target) Link() keyserver.HiddenLink {
	if t.cachedKey == nil {
		return ""
	}
	return t.acl.Link
}

// Count implements gate.Target. It decrements a usage limit if only limited ACL entries allow the use.
func (t target) Count(ctx context.Context, by keyserver.Caller) error {
	if len(t.limited) == 0 {
		return nil
	}
	taken, err := t.keys.countUse(ctx, by, t.limited)
	if err == nil && !taken {
		err = denied("the caller's entry has no uses left")
	}
	return err
}

// used returns the link and the generation of the key, for responses.
func (k *cachedKey) used() keyserver.UsedKey {
	return keyserver.UsedKey{Link: k.acl.Link, Generation: k.life.Generation}
}

// MintKey implements keyserver.Keys.
func (ks *Keys) MintKey(ctx context.Context, by keyserver.Caller, key keyserver.NewKey) (keyserver.KeyMetadata, error) {
	info, ok := keyserver.Algorithms[key.Algorithm]
	if !ok {
		return keyserver.KeyMetadata{}, fault.New(fault.InvalidArgument, "algorithm: must be %s or %s", keyserver.HMACSHA384, keyserver.AES256)
	}
	id, err := values.NewID(ks.Random)
	if err != nil {
		return keyserver.KeyMetadata{}, err
	}
	link := values.NewHiddenLink(ks.System, id)
	r := gate.Request{By: by, Op: keyserver.OpCreateKey, Object: link.Base64()}
	var meta keyserver.KeyMetadata
	err = ks.Perform(ctx, r, func() (err error) {
		material := key.Material
		if material == nil {
			material = make([]byte, info.MintLen)
			defer clear(material)
			if _, err := io.ReadFull(ks.Random, material); err != nil {
				return fmt.Errorf("create key material: %w", err)
			}
		}
		if len(material) < info.MinLen || len(material) > info.MaxLen {
			return fault.New(fault.InvalidArgument, "material: must have %d to %d bytes for %s, not %d", info.MinLen, info.MaxLen, key.Algorithm, len(material)).Audited(fault.ReasonInvalidArgument)
		}
		meta, err = ks.storeKey(ctx, by, id, key, material)
		return err
	})
	if err != nil {
		return keyserver.KeyMetadata{}, err
	}
	return meta, nil
}

// storeKey wraps the material and stores the key with its ACL. The entries may come from a templated directory.
func (ks *Keys) storeKey(ctx context.Context, by keyserver.Caller, id keyserver.ID, key keyserver.NewKey, material []byte) (keyserver.KeyMetadata, error) {
	acl, err := values.NewID(ks.Random)
	if err != nil {
		return keyserver.KeyMetadata{}, err
	}
	record := sqlstore.KeyRecord{
		ID: id, Algorithm: key.Algorithm, KeyBytes: len(material), ACL: acl, CreatedAt: ks.now(), Life: keyserver.FirstLife(id),
	}
	record.Life.Exportable = !key.Sealed
	meta := ks.metadataOfRecord(record)
	err = ks.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		entries, at, err := ks.firstEntries(ctx, tx, by.Principal, key.Path)
		if err != nil {
			return err
		}
		meta.Directory = at
		if record.Wrapped, err = ks.keyring.Wrap(id, ks.System, material); err != nil {
			return fmt.Errorf("wrap the key: %w", err)
		}
		return tx.InsertKey(ctx, record, entries...)
	})
	return meta, err
}

// Key implements keyserver.Keys. Only a transport principal may read the metadata of a key (contract 7.6).
func (ks *Keys) Key(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink) (keyserver.KeyMetadata, error) {
	r := gate.Request{By: by, Op: keyserver.OpReadKey, Link: link, Object: link.Base64()}
	if to, ok := ks.Foreign(link); ok {
		return ks.forwardKey(ctx, r, to)
	}
	err := ks.AuthorizeAndAudit(ctx, r, ks.transportOnly(by), ks.readCheck(link))
	if err != nil {
		return keyserver.KeyMetadata{}, err
	}
	return ks.metadata(ctx, idOf(link))
}

func (ks *Keys) transportOnly(by keyserver.Caller) gate.Check {
	return func(context.Context, access.Subject) error {
		if by.Type == keyserver.CertificatePrincipal {
			return ks.Step(keyserver.StepTransport, nil)
		}
		return ks.Step(keyserver.StepTransport, fault.New(fault.AccessDenied,
			"reading key metadata requires a transport principal; log in with an enrolled certificate").Audited(fault.ReasonNotTransport))
	}
}

// AuthorizeKey implements keyserver.Keys. The authorization counts as a use of the key.
func (ks *Keys) AuthorizeKey(ctx context.Context, by keyserver.Caller, use keyserver.Use) (keyserver.Grant, error) {
	r := gate.Request{By: by, Op: keyserver.OpAuthorizeKey, Link: use.Link, Object: use.Link.Base64(), Filename: use.Filename, Counts: true}
	if to, ok := ks.Foreign(use.Link); ok {
		return ks.forwardAuthorize(ctx, r, to, use)
	}
	err := gate.PerformOn(ctx, ks.Gate, r, ks.resolveUse(by, use.Link, keyserver.Read), func(target) error { return nil })
	if err != nil {
		return keyserver.Grant{}, err
	}
	return keyserver.Grant{System: ks.System, FilenameAudited: use.Filename != ""}, nil
}

// HMAC implements keyserver.Keys.
func (ks *Keys) HMAC(ctx context.Context, by keyserver.Caller, in keyserver.HMACRequest) (mac [keyserver.MACSize]byte, err error) {
	r := gate.Request{By: by, Op: keyserver.OpHMAC, Link: in.Link, Object: in.Link.Base64(), Counts: true}
	if to, ok := ks.Foreign(in.Link); ok {
		return ks.forwardHMAC(ctx, r, to, in)
	}
	err = gate.PerformOn(ctx, ks.Gate, r, ks.resolveUse(by, in.Link, keyserver.Read), func(key target) error {
		return key.mac(in.Message, &mac)
	})
	return mac, err
}

// readCheck returns a check that the link names a key and that its ACL grants READ to the caller.
func (ks *Keys) readCheck(link keyserver.HiddenLink) gate.Check {
	return func(ctx context.Context, who access.Subject) error {
		key, err := ks.find(ctx, link, fault.KeyNotFound)
		if err != nil {
			return err
		}
		return ks.checkACL(key, who, keyserver.Read)
	}
}

// checkACL fails unless the key's ACL grants a right to the subject.
func (ks *Keys) checkACL(key *cachedKey, who access.Subject, want keyserver.Rights) error {
	verdict := access.Evaluate(key.acl, who, want, ks.Clock())
	ks.NoteVerdict(key.acl, verdict)
	if verdict.Allowed {
		return ks.Step(keyserver.StepACL, nil)
	}
	return ks.Step(keyserver.StepACL, denied(verdict.Why))
}

// resolveUse returns a Resolver for the key that the link names. The Resolver fails unless the caller may use the key
// now.
func (ks *Keys) resolveUse(by keyserver.Caller, link keyserver.HiddenLink, want keyserver.Rights) gate.Resolver[target] {
	return func(ctx context.Context, who access.Subject) (target, error) {
		key, err := ks.find(ctx, link, fault.KeyNotFound)
		if err != nil {
			return target{}, err
		}
		return ks.authorizeUse(ctx, by, who, want, keyserver.KeyState.MayCreate, key)
	}
}

// authorizeUse returns the key as the target of a use. It fails unless the ACL and the state of the key allow the use
// now. If the ACL denies the caller, for example because no uses are left, the caller does not learn the state of the
// key.
func (ks *Keys) authorizeUse(ctx context.Context, by keyserver.Caller, who access.Subject, want keyserver.Rights, permits func(keyserver.KeyState) bool, key *cachedKey) (target, error) {
	verdict := access.Evaluate(key.acl, who, want, ks.Clock())
	use := target{cachedKey: key, keys: ks, limited: verdict.Limited}
	ks.NoteVerdict(key.acl, verdict)
	if !verdict.Allowed && !verdict.Spent {
		return use, ks.Step(keyserver.StepACL, denied(verdict.Why))
	}
	_ = ks.Step(keyserver.StepACL, nil)
	if !verdict.Allowed { // the first try of a repeated call may have taken the last use
		var err error
		if verdict.Allowed, err = ks.Repeated(ctx, by); err != nil {
			return use, err
		}
	}
	if !verdict.Allowed {
		return use, ks.Step(keyserver.StepUses, denied(verdict.Why))
	}
	if err := ks.Step(keyserver.StepState, key.serves(permits)); err != nil {
		return use, err
	}
	return use, ks.Step(keyserver.StepUses, nil)
}

func denied(why string) error {
	return fault.New(fault.ACLDenied, "ACL denied: %s; ask a key owner", why).
		Audited(fault.ReasonACLDenied)
}

// countUse counts one use on the first of the entries that has a use left. The decision is made in the database, so
// that two replicas cannot take the same use.
func (ks *Keys) countUse(ctx context.Context, by keyserver.Caller, entries []keyserver.ACLEntry) (taken bool, err error) {
	err = ks.Store.Update(ctx, func(tx *sqlstore.Tx) (err error) {
		taken, err = ks.RunOnce(ctx, by, tx, func() (bool, error) {
			for _, entry := range entries {
				if taken, err := tx.UseACLEntry(ctx, entry.ID); err != nil || taken {
					return taken, err
				}
			}
			return false, nil
		})
		return err
	})
	return taken, err
}

// find reads the key that a link names, through the cache. absent is the error code if there is no such key.
func (ks *Keys) find(ctx context.Context, link keyserver.HiddenLink, absent fault.Code) (*cachedKey, error) {
	var key *cachedKey
	system, id, ok := link.Split()
	err := sqlstore.ErrNotFound
	if ok && system == ks.System {
		key, err = ks.readKey(ctx, id)
	}
	if errors.Is(err, sqlstore.ErrNotFound) {
		err = noKey(absent)
	}
	return key, ks.Step(keyserver.StepKey, err)
}

// idOf returns the id of the key that a link names. The link must be valid.
func idOf(link keyserver.HiddenLink) keyserver.ID {
	_, id, _ := link.Split()
	return id
}

func noKey(code fault.Code) error {
	return fault.New(code, "the hidden link does not identify a key of this key server").Audited(fault.ReasonObjectNotFound)
}

// readKey reads a key through the cache.
func (ks *Keys) readKey(ctx context.Context, id keyserver.ID) (*cachedKey, error) {
	if ks.base != nil {
		return ks.supposed(ctx, id)
	}
	return ks.keys.Get(ctx, id)
}

// loadKey reads a key and its ACL from the store. If the state of the key allows a use, hold also prepares the key for
// uses.
func (ks *Keys) loadKey(ctx context.Context, id keyserver.ID) (*cachedKey, error) {
	record, acl, err := ks.Store.KeyWithACL(ctx, id)
	if err != nil {
		return nil, err
	}
	if acl.Entries, err = ks.withUses(ctx, record.Life.Lineage, acl.Entries); err != nil {
		return nil, err
	}
	acl.Link = values.NewHiddenLink(ks.System, id)
	held := &cachedKey{id: id, algorithm: record.Algorithm, keyBytes: record.KeyBytes, acl: acl, life: record.Life}
	if !record.Life.State.MayVerify() {
		return held, nil
	}
	plain, err := ks.keyring.Unwrap(id, ks.System, record.Wrapped)
	if err != nil {
		return nil, fmt.Errorf("unwrap key %s: %w", id, err)
	}
	if record.Algorithm == keyserver.AES256 {
		if held.aead, err = ciphertext.New(plain); err != nil {
			clear(plain)
			return nil, err
		}
	}
	held.macs, err = newMACs(plain)
	return held, err
}

// withUses returns the entries of a key's ACL with the current number of uses in the lineage. The cached number may be
// old: a use drops the cached ACL only if no uses are left.
func (ks *Keys) withUses(ctx context.Context, line keyserver.ID, entries []keyserver.ACLEntry) ([]keyserver.ACLEntry, error) {
	entries = slices.Clone(entries)
	if !slices.ContainsFunc(entries, func(entry keyserver.ACLEntry) bool { return entry.MaxUsage > 0 }) {
		return entries, nil
	}
	spent, err := ks.Store.UsesOfLineage(ctx, line)
	if err != nil {
		return nil, err
	}
	for i := range entries {
		if used, limited := spent[entries[i].Principal]; limited && entries[i].MaxUsage > 0 {
			entries[i].Used = used
		}
	}
	return entries, nil
}
