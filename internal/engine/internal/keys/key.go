package keys

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ciphertext"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// heldKey is a key as the engine keeps it between operations: what decides on
// its use, and keyed states, but not its bytes.
type heldKey struct {
	id        keyserver.ID
	algorithm keyserver.Algorithm
	keyBytes  int
	acl       keyserver.ACL
	life      keyserver.KeyLife
	macs      *macs            // nil where the state of the key rules every use out
	aead      *ciphertext.AEAD // of an AES-256 key
}

// used is the key as answers name it.
func (k *heldKey) used() keyserver.UsedKey {
	return keyserver.UsedKey{Link: k.acl.Link, Generation: k.life.Generation}
}

// MintKey implements keyserver.Keys.
func (ks *Keys) MintKey(ctx context.Context, by keyserver.Caller, key keyserver.NewKey) (keyserver.KeyMetadata, error) {
	info, ok := keyserver.Algorithms[key.Algorithm]
	if !ok {
		return keyserver.KeyMetadata{}, fault.New(fault.InvalidArgument, "unknown algorithm")
	}
	id, err := keyserver.NewID(ks.Random)
	if err != nil {
		return keyserver.KeyMetadata{}, err
	}
	link := keyserver.NewHiddenLink(ks.System, id)
	r := gate.Request{By: by, Op: keyserver.OpCreateKey, Object: link.Base64()}
	var meta keyserver.KeyMetadata
	err = ks.Perform(ctx, r, func() (err error) {
		material := key.Material
		if material == nil {
			material = make([]byte, info.MintLen)
			defer clear(material)
			if _, err := io.ReadFull(ks.Random, material); err != nil {
				return fmt.Errorf("draw key material: %w", err)
			}
		}
		if len(material) < info.MinLen || len(material) > info.MaxLen {
			return fault.New(fault.InvalidArgument, "%d bytes are no %s key", len(material), key.Algorithm).Audited(fault.ReasonInvalidArgument)
		}
		meta, err = ks.storeKey(ctx, by, id, key, material)
		return err
	})
	if err != nil {
		return keyserver.KeyMetadata{}, err
	}
	return meta, nil
}

// storeKey wraps the material and writes the key with its list, whose entries a
// templated directory may have given.
func (ks *Keys) storeKey(ctx context.Context, by keyserver.Caller, id keyserver.ID, key keyserver.NewKey, material []byte) (keyserver.KeyMetadata, error) {
	acl, err := keyserver.NewID(ks.Random)
	if err != nil {
		return keyserver.KeyMetadata{}, err
	}
	record := sqlstore.KeyRecord{
		ID: id, Algorithm: key.Algorithm, KeyBytes: len(material), ACL: acl, CreatedAt: ks.now(), Life: keyserver.FirstLife(id),
	}
	record.Life.Exportable = !key.Sealed
	meta := ks.told(record)
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

// Key implements keyserver.Keys. Only a transport principal, one that logged
// in with a certificate, may read metadata (contract 7.6).
func (ks *Keys) Key(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink) (keyserver.KeyMetadata, error) {
	var key *heldKey
	r := gate.Request{By: by, Op: keyserver.OpReadKey, Link: link, Object: link.Base64()}
	if to, ok := ks.Foreign(link); ok {
		return ks.forwardKey(ctx, r, to)
	}
	err := ks.AuthorizeAndAudit(ctx, r, ks.transportOnly(by), ks.holds(link, fault.KeyNotFound, keyserver.Read, &key))
	if err != nil {
		return keyserver.KeyMetadata{}, err
	}
	return ks.metadata(ctx, key.id)
}

func (ks *Keys) transportOnly(by keyserver.Caller) gate.Check {
	return func(context.Context, access.Subject) error {
		if by.Type == keyserver.CertificatePrincipal {
			return ks.Step(keyserver.StepTransport, nil)
		}
		return ks.Step(keyserver.StepTransport, fault.New(fault.AccessDenied,
			"reading key metadata needs a transport principal, one that logged in with an enrolled certificate").Audited(fault.ReasonNotTransport))
	}
}

// AuthorizeKey implements keyserver.Keys. A grant is a use: it counts against
// an entry's usage limit.
func (ks *Keys) AuthorizeKey(ctx context.Context, by keyserver.Caller, use keyserver.Use) (keyserver.Grant, error) {
	var key *heldKey
	r := gate.Request{By: by, Op: keyserver.OpAuthorizeKey, Link: use.Link, Object: use.Link.Base64(), Filename: use.Filename, Counts: true}
	if to, ok := ks.Foreign(use.Link); ok {
		return ks.forwardAuthorize(ctx, r, to, use)
	}
	err := ks.AuthorizeAndAudit(ctx, r, ks.uses(by, use.Link, keyserver.Read, &key))
	if err != nil {
		return keyserver.Grant{}, err
	}
	return keyserver.Grant{System: ks.System, FilenameAudited: use.Filename != ""}, nil
}

// HMAC implements keyserver.Keys.
func (ks *Keys) HMAC(ctx context.Context, by keyserver.Caller, in keyserver.HMACRequest) (mac [keyserver.MACSize]byte, err error) {
	var key *heldKey
	r := gate.Request{By: by, Op: keyserver.OpHMAC, Link: in.Link, Object: in.Link.Base64(), Counts: true}
	if to, ok := ks.Foreign(in.Link); ok {
		return ks.forwardHMAC(ctx, r, to, in)
	}
	if err := ks.AuthorizeAndAudit(ctx, r, ks.uses(by, in.Link, keyserver.Read, &key)); err != nil {
		return mac, err
	}
	state, err := key.macs.take()
	if err != nil {
		return mac, ks.Failed(ctx, r, err)
	}
	defer key.macs.put(state)
	if _, err := in.Message.WriteTo(state); err != nil {
		return mac, ks.Failed(ctx, r, err)
	}
	state.Sum(mac[:0])
	return mac, nil
}

// holds is the check that the link names a key and that the caller holds want
// on it. absent is the code where there is no such key.
func (ks *Keys) holds(link keyserver.HiddenLink, absent fault.Code, want keyserver.Rights, key **heldKey) gate.Check {
	return func(ctx context.Context, who access.Subject) error {
		if err := ks.find(ctx, link, absent, key); err != nil {
			return err
		}
		return ks.checkACL(*key, who, want)
	}
}

// checkACL fails unless the key's ACL grants a right to the subject.
func (ks *Keys) checkACL(key *heldKey, who access.Subject, want keyserver.Rights) error {
	verdict := access.Evaluate(key.acl, who, want, ks.Clock())
	ks.NoteVerdict(key.acl, verdict)
	if verdict.Allowed {
		return ks.Step(keyserver.StepList, nil)
	}
	return ks.Step(keyserver.StepList, denied(verdict))
}

// uses is the check that the caller may use the key now; a use is counted
// where only entries with a limit allow it.
func (ks *Keys) uses(by keyserver.Caller, link keyserver.HiddenLink, want keyserver.Rights, key **heldKey) gate.Check {
	return ks.usesWhile(keyserver.KeyState.Makes, by, link, want, key)
}

// usesWhile is uses for a use that other states permit. Who has no right is not told
// of the state, and a use that it rules out is not counted.
func (ks *Keys) usesWhile(permits func(keyserver.KeyState) bool, by keyserver.Caller, link keyserver.HiddenLink, want keyserver.Rights, key **heldKey) gate.Check {
	return func(ctx context.Context, who access.Subject) error {
		if err := ks.find(ctx, link, fault.KeyNotFound, key); err != nil {
			return err
		}
		return ks.use(ctx, by, who, want, permits, *key)
	}
}

// use fails unless the key's ACL and state allow the caller to use it now. It counts the use.
func (ks *Keys) use(ctx context.Context, by keyserver.Caller, who access.Subject, want keyserver.Rights, permits func(keyserver.KeyState) bool, key *heldKey) error {
	verdict, err := ks.mayUse(ctx, by, who, want, permits, key)
	if err != nil {
		return err
	}
	return ks.countUse(ctx, by, verdict)
}

// mayUse fails unless the key's ACL and state allow the caller to use it now. It counts no use. A caller that the ACL
// denies, also because no uses are left, does not learn the state.
func (ks *Keys) mayUse(ctx context.Context, by keyserver.Caller, who access.Subject, want keyserver.Rights, permits func(keyserver.KeyState) bool, key *heldKey) (access.Verdict, error) {
	verdict := access.Evaluate(key.acl, who, want, ks.Clock())
	ks.NoteVerdict(key.acl, verdict)
	if !verdict.Allowed && !verdict.Spent {
		return verdict, ks.Step(keyserver.StepList, denied(verdict))
	}
	_ = ks.Step(keyserver.StepList, nil)
	if !verdict.Allowed { // perhaps spent by an earlier try of this very call
		var err error
		if verdict.Allowed, err = ks.Repeated(ctx, by); err != nil {
			return verdict, err
		}
	}
	if !verdict.Allowed {
		return verdict, ks.Step(keyserver.StepUses, denied(verdict))
	}
	if err := ks.Step(keyserver.StepState, key.serves(permits)); err != nil {
		return verdict, err
	}
	return verdict, ks.Step(keyserver.StepUses, nil)
}

// countUse decrements a usage limit if only limited ACL entries allow the use.
func (ks *Keys) countUse(ctx context.Context, by keyserver.Caller, verdict access.Verdict) error {
	if len(verdict.Limited) == 0 || ks.Explains() {
		return nil
	}
	taken, err := ks.takeUse(ctx, by, verdict.Limited)
	if err == nil && !taken {
		verdict.Why = "the caller's entry has no uses left"
		err = denied(verdict)
	}
	return err
}

func denied(verdict access.Verdict) error {
	return fault.New(fault.ACLDenied, "the key's access control list refuses: %s; ask the key's owner", verdict.Why).
		Audited(fault.ReasonACLDenied)
}

// takeUse counts one use on the first entry that has one left. The database
// decides, so that replicas cannot spend one use twice.
func (ks *Keys) takeUse(ctx context.Context, by keyserver.Caller, entries []keyserver.ACLEntry) (taken bool, err error) {
	err = ks.Store.Update(ctx, func(tx *sqlstore.Tx) (err error) {
		taken, err = ks.Once(ctx, by, tx, func() (bool, error) {
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

// find reads the key that a link names, through the cache.
func (ks *Keys) find(ctx context.Context, link keyserver.HiddenLink, absent fault.Code, key **heldKey) error {
	system, id, ok := link.Split()
	if !ok || system != ks.System {
		return ks.Step(keyserver.StepKey, noKey(absent))
	}
	held, err := ks.held(ctx, id)
	if errors.Is(err, sqlstore.ErrNotFound) {
		return ks.Step(keyserver.StepKey, noKey(absent))
	}
	if err != nil {
		return ks.Step(keyserver.StepKey, err)
	}
	*key = held
	return ks.Step(keyserver.StepKey, nil)
}

func noKey(code fault.Code) error {
	return fault.New(code, "the hidden link names no key of this key server").Audited(fault.ReasonObjectNotFound)
}

// held reads a key through the cache.
func (ks *Keys) held(ctx context.Context, id keyserver.ID) (*heldKey, error) {
	if ks.behind != nil {
		return ks.supposed(ctx, id)
	}
	return ks.keys.Get(ctx, id, func() (*heldKey, error) { return ks.hold(ctx, id) })
}

// hold reads a key and its list from the store and keys its states, where there is
// something left to key them with.
func (ks *Keys) hold(ctx context.Context, id keyserver.ID) (*heldKey, error) {
	record, acl, err := ks.Store.KeyWithACL(ctx, id)
	if err != nil {
		return nil, err
	}
	if acl.Entries, err = ks.withUses(ctx, record.Life.Lineage, acl.Entries); err != nil {
		return nil, err
	}
	acl.Link = keyserver.NewHiddenLink(ks.System, id)
	held := &heldKey{id: id, algorithm: record.Algorithm, keyBytes: record.KeyBytes, acl: acl, life: record.Life}
	if !record.Life.State.Checks() {
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

// withUses returns entries of the list of a key with the uses of its line that are spent by
// now. A cached list is only forgotten once an entry is used up.
func (ks *Keys) withUses(ctx context.Context, line keyserver.ID, entries []keyserver.ACLEntry) ([]keyserver.ACLEntry, error) {
	entries = slices.Clone(entries)
	if !slices.ContainsFunc(entries, func(entry keyserver.ACLEntry) bool { return entry.MaxUsage > 0 }) {
		return entries, nil
	}
	spent, err := ks.Store.UsesOfLine(ctx, line)
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
