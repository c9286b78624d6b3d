package keys

import (
	"context"
	"errors"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ciphertext"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/usagequota"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

var (
	encryption = purpose{algorithm: keyserver.AES256, allows: keyserver.KeyState.MayCreate, does: "encrypts"}
	decrypts   = purpose{algorithm: keyserver.AES256, allows: keyserver.KeyState.MayVerify, does: "decrypts"}
)

// rotationThreshold is the number of remaining encryptions at which a lineage is rotated. They suffice for all replicas during the
// rotation.
const rotationThreshold = keyserver.MaxEncryptions / 16

// Encrypt implements keyserver.Keys.
func (ks *Keys) Encrypt(ctx context.Context, by keyserver.Caller, in keyserver.Encryption) (sealed keyserver.Ciphertext, err error) {
	r := choosing(by, keyserver.OpEncrypt, in.KeyChoice)
	if to, ok := ks.Foreign(in.Named()); ok {
		return ks.forwardEncrypt(ctx, r, to, in)
	}
	err = gate.PerformOn(ctx, ks.Gate, r, ks.resolveEncryption(by, in.KeyChoice), func(key *encryptionKey) error {
		sealed = keyserver.Ciphertext{UsedKey: key.used(), Sealed: key.aead.Seal(key.id, in.Plain, in.Associated)}
		return nil
	})
	return sealed, err
}

// encryptionKey is the key of an encryption. If the key has no encryptions left, Count replaces the key by its
// successor.
type encryptionKey struct {
	target
	who     access.Subject
	resolve gate.Resolver[target]
	line    bool // the request names a lineage
}

// resolveEncryption returns a Resolver for the key to encrypt with. The Resolver fails unless the caller may use the
// key now.
func (ks *Keys) resolveEncryption(by keyserver.Caller, choice keyserver.KeyChoice) gate.Resolver[*encryptionKey] {
	resolve := ks.resolveKey(by, choice, encryption)
	return func(ctx context.Context, who access.Subject) (*encryptionKey, error) {
		use, err := resolve(ctx, who)
		if err == nil && ks.Explains() { // the gate does not call Count for an explanation
			_, err = ks.encryptions.Peek(ctx, use.id)
			err = ks.Step(keyserver.StepUses, exhausted(err))
		}
		return &encryptionKey{target: use, who: who, resolve: resolve, line: choice.Lineage != ""}, err
	}
}

// Count implements gate.Target. It takes one of the remaining encryptions of the key, and then counts the use. If the
// request names a lineage and few encryptions remain, Count rotates the lineage.
func (k *encryptionKey) Count(ctx context.Context, by keyserver.Caller) error {
	taken, err := k.keys.encryptions.Take(ctx, k.id)
	if err = exhausted(err); err == nil {
		err = k.target.Count(ctx, by)
	}
	none := fault.CodeOf(err) == fault.KeyExhausted
	if !k.line || !none && (err != nil || !taken.Fresh || taken.Left >= rotationThreshold) {
		return err
	}
	if cause := k.keys.rotate(ctx, k.id); cause != nil {
		k.keys.Logger.Warn("a key lineage could not be rotated, and its newest key has few or no encryptions left", "key", k.id.Hex(), "left", taken.Left, "cause", cause)
		return err
	}
	if !none {
		return nil
	}
	successor, err := k.resolve(ctx, k.who)
	if successor.cachedKey != nil {
		k.target = successor
	}
	if err != nil {
		return err
	}
	k.line = false // rotate only once
	return k.Count(ctx, by)
}

// exhausted replaces usagequota.ErrNone by the fault KEY_EXHAUSTED. It returns every other error unchanged.
func exhausted(err error) error {
	if errors.Is(err, usagequota.ErrNone) {
		return fault.New(fault.KeyExhausted, "the key has reached the limit of %d encryptions; rotate it; to rotate automatically, send lineage instead of ttag", int64(keyserver.MaxEncryptions)).
			Audited(fault.ReasonKeyExhausted)
	}
	return err
}

// rotateExhausted rotates a lineage whose newest key has few or no encryptions left. It does nothing if the key already
// has a successor.
func (ks *Keys) rotateExhausted(ctx context.Context, key keyserver.ID) error {
	err := ks.rotateBySelf(ctx, key)
	if f := fault.As(err); f != nil && f.Code == fault.KeyState {
		return nil
	}
	return err
}

func (ks *Keys) reserveEncryptions(ctx context.Context, key keyserver.ID, n int64) (got, left int64, err error) {
	if n == 0 {
		left, err = ks.Store.EncryptionsLeft(ctx, key, keyserver.MaxEncryptions)
		return 0, left, err
	}
	err = ks.Store.Update(ctx, func(tx *sqlstore.Tx) (err error) {
		got, left, err = tx.ReserveEncryptions(ctx, key, n, keyserver.MaxEncryptions)
		return err
	})
	return got, left, err
}

// Decrypt implements keyserver.Keys.
func (ks *Keys) Decrypt(ctx context.Context, by keyserver.Caller, in keyserver.Decryption) (plain keyserver.Plaintext, err error) {
	r := choosing(by, keyserver.OpDecrypt, in.KeyChoice)
	if to, ok := ks.Foreign(in.Named()); ok {
		return ks.forwardDecrypt(ctx, r, to, in)
	}
	err = gate.PerformOn(ctx, ks.Gate, r, ks.resolveDecryption(by, in), func(key target) (err error) {
		plain.UsedKey = key.used()
		if plain.Plain, err = key.aead.Open(in.Sealed, in.Associated); err != nil {
			return gate.Invalid("ciphertext: cannot be decrypted; send it unchanged, with the associatedData of its encryption")
		}
		return nil
	})
	return plain, err
}

// resolveDecryption returns a Resolver for the key that the ciphertext names. The Resolver fails unless the request
// names the same key, or the lineage of that key. It also fails unless the caller may use the key now. A caller that
// the ACL denies does not learn whether the ciphertext belongs to the lineage.
func (ks *Keys) resolveDecryption(by keyserver.Caller, in keyserver.Decryption) gate.Resolver[target] {
	return func(ctx context.Context, who access.Subject) (target, error) {
		id, err := ciphertext.KeyOf(in.Sealed)
		if err != nil {
			return target{}, gate.Invalid("ciphertext: %s", err)
		}
		if in.Lineage == "" {
			key, err := ks.find(ctx, in.Key, fault.KeyNotFound)
			if err != nil {
				return target{}, err
			}
			if key.id != id {
				return ks.madeByOther(key, who, "was not encrypted with the key of ttag; send the ttag of the key that encrypted it, or the lineage")
			}
		} else {
			ids, err := ks.lineage(ctx, in.Lineage)
			if err != nil {
				return target{}, err
			}
			if !slices.Contains(ids, id) {
				key, err := ks.choose(ctx, in.KeyChoice, decrypts)
				if err != nil {
					return target{}, err
				}
				return ks.madeByOther(key, who, "was not encrypted with a key of this lineage")
			}
		}
		named := keyserver.KeyChoice{Key: values.NewHiddenLink(ks.System, id)}
		return ks.resolveKey(by, named, decrypts)(ctx, who)
	}
}

// madeByOther refuses a ciphertext that another key made. If the ACL of the named key denies the caller, the refusal
// says only that.
func (ks *Keys) madeByOther(named *cachedKey, who access.Subject, problem string) (target, error) {
	err := ks.checkACL(named, who, keyserver.Read)
	if err == nil {
		err = gate.Invalid("ciphertext: %s", problem)
	}
	return target{cachedKey: named}, err
}
