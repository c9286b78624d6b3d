package keys

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ciphertext"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/usagequota"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

var (
	encryption = purpose{algorithm: keyserver.AES256, allows: keyserver.KeyState.Makes, does: "encrypts"}
	decrypts   = purpose{algorithm: keyserver.AES256, allows: keyserver.KeyState.Checks, does: "decrypts"}
)

// few is how many encryptions are left when a line is rotated: enough for what the
// replicas do in the meantime.
const few = keyserver.MaxEncryptions / 16

// Encrypt implements keyserver.Keys.
func (ks *Keys) Encrypt(ctx context.Context, by keyserver.Caller, in keyserver.Encryption) (keyserver.Ciphertext, error) {
	var key chosen
	r := choosing(by, keyserver.OpEncrypt, in.KeyChoice, &key)
	if to, ok := ks.Foreign(in.Named()); ok {
		return ks.forwardEncrypt(ctx, r, to, in)
	}
	if err := ks.AuthorizeAndAudit(ctx, r, ks.encrypts(by, in.KeyChoice, &key.heldKey)); err != nil {
		return keyserver.Ciphertext{}, err
	}
	return keyserver.Ciphertext{UsedKey: key.used(), Sealed: key.aead.Seal(key.id, in.Plain, in.Associated)}, nil
}

// encrypts is the check that the caller may encrypt under a key that has encryptions
// left, and takes one. A line is rotated before its newest key has none.
func (ks *Keys) encrypts(by keyserver.Caller, choice keyserver.KeyChoice, key **heldKey) gate.Check {
	return func(ctx context.Context, who access.Subject) error {
		var taken usagequota.Taken
		what := encryption
		what.takes = func(ctx context.Context, id keyserver.ID) (err error) {
			taken, err = ks.takeEncryption(ctx, id)
			return err
		}
		choose := ks.resolveKey(by, choice, what, key)
		err := choose(ctx, who)
		none := fault.CodeOf(err) == fault.KeyExhausted
		if choice.Line == "" || ks.Explains() || !none && (err != nil || !taken.Fresh || taken.Left >= few) {
			return err
		}
		if cause := ks.rotate(ctx, (*key).id); cause != nil {
			ks.Logger.Warn("a line of keys could not be rotated before its newest has encrypted as often as it may", "key", (*key).id.Hex(), "left", taken.Left, "cause", cause)
			return err
		}
		if !none {
			return nil
		}
		return choose(ctx, who)
	}
}

// takeEncryption takes one of the encryptions that a key has left.
func (ks *Keys) takeEncryption(ctx context.Context, key keyserver.ID) (usagequota.Taken, error) {
	take := ks.encryptions.Take
	if ks.Explains() {
		take = ks.encryptions.Peek
	}
	taken, err := take(ctx, key)
	if errors.Is(err, usagequota.ErrNone) {
		err = fault.New(fault.KeyExhausted, "the key has encrypted %d times, as often as one key may; rotate it, and name its line from then on", int64(keyserver.MaxEncryptions)).
			Audited(fault.ReasonKeyExhausted)
	}
	return taken, err
}

// rotateExhausted succeeds the newest key of a line because it may not be used more,
// whoever asked for its last use. Where somebody was faster there is nothing to do.
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
func (ks *Keys) Decrypt(ctx context.Context, by keyserver.Caller, in keyserver.Decryption) (keyserver.Plaintext, error) {
	var key chosen
	r := choosing(by, keyserver.OpDecrypt, in.KeyChoice, &key)
	if to, ok := ks.Foreign(in.Named()); ok {
		return ks.forwardDecrypt(ctx, r, to, in)
	}
	if err := ks.AuthorizeAndAudit(ctx, r, ks.opens(by, in, &key.heldKey)); err != nil {
		return keyserver.Plaintext{}, err
	}
	plain, err := key.aead.Open(in.Sealed, in.Associated)
	if err != nil {
		return keyserver.Plaintext{}, ks.Failed(ctx, r, gate.Invalid("the ciphertext does not open: it was changed, or was encrypted with other associatedData"))
	}
	return keyserver.Plaintext{UsedKey: key.used(), Plain: plain}, nil
}

// opens is the check that the ciphertext names the key that is asked for, or one of
// the line, and that the caller may use that one. A caller that the list denies is
// not told whether the ciphertext is of the line.
func (ks *Keys) opens(by keyserver.Caller, in keyserver.Decryption, key **heldKey) gate.Check {
	return func(ctx context.Context, who access.Subject) error {
		id, err := ciphertext.KeyOf(in.Sealed)
		if err != nil {
			return gate.Invalid("ciphertext: %s", err)
		}
		named := keyserver.KeyChoice{Key: keyserver.NewHiddenLink(ks.System, id)}
		if in.Line == "" {
			if err := ks.find(ctx, in.Key, fault.KeyNotFound, key); err != nil {
				return err
			}
			if id != (*key).id {
				if err := ks.checkACL(*key, who, keyserver.Read); err != nil {
					return err
				}
				return gate.Invalid("ciphertext: was not made with the key that ttag names; send the ttag of that key, or the lineage")
			}
			return ks.resolveKey(by, named, decrypts, key)(ctx, who)
		}
		ids, err := ks.line(ctx, in.Line)
		if err != nil {
			return err
		}
		for _, one := range ids {
			if one == id {
				return ks.resolveKey(by, named, decrypts, key)(ctx, who)
			}
		}
		if *key, err = ks.choose(ctx, in.KeyChoice, decrypts); err != nil {
			return err
		}
		if err := ks.checkACL(*key, who, keyserver.Read); err != nil {
			return err
		}
		return gate.Invalid("ciphertext: was not made with a key of that line")
	}
}
