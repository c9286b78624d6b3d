package keyring

import (
	"bytes"
	"context"
	"crypto/hmac"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

const (
	recoveryVersion = 1
	// maxRecovery is the maximum size of a recovery file and of an identity file, in bytes.
	maxRecovery = 1 << 20
)

// recovery is the plaintext of a recovery file: the data keys of a database.
type recovery struct {
	Version int               `json:"version"`
	Keys    map[string][]byte `json:"keys"` // the data keys by id
	Label   []byte            `json:"label"`
}

// WriteRecovery encrypts the data keys of a database for an age recipient and returns their ids. The owner of the age
// identity can open the database without the key-encryption key. The file does not contain data keys of later
// rotations.
func WriteRecovery(ctx context.Context, provider *Provider, setting func(ctx context.Context, name string) ([]byte, error), recipient string, out io.Writer) ([]keyserver.ID, error) {
	recipients, err := age.ParseRecipients(bytes.NewReader([]byte(recipient)))
	if err != nil || len(recipients) != 1 {
		return nil, errors.New("--recipient: not an age recipient; it must begin with age1")
	}
	stored, err := setting(ctx, dataKeySetting)
	if err != nil {
		return nil, fmt.Errorf("read the data keys: %w", err)
	}
	if !isRing(stored) {
		return nil, errors.New("the database has a data key of an older version; start the server of this version once")
	}
	k := providers{provider, nil}
	r, err := openRing(ctx, k, stored, nil)
	if err != nil {
		return nil, err
	}
	file := recovery{Version: recoveryVersion, Keys: map[string][]byte{}, Label: r.label[:]}
	var ids []keyserver.ID
	for _, one := range r.keys {
		if one.state == keyserver.DataKeyRetired {
			continue
		}
		key, err := k.key(ctx, one.wrapped, nil)
		if err != nil {
			return nil, err
		}
		defer clear(key)
		file.Keys[one.id.Hex()] = key
		ids = append(ids, one.id)
	}
	text, err := json.Marshal(file)
	defer clear(text)
	if err != nil {
		return nil, err
	}
	w, err := age.Encrypt(out, recipients...)
	if err != nil {
		return nil, fmt.Errorf("encrypt the data keys: %w", err)
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	return ids, w.Close()
}

// Recover wraps the data keys of a database with another key-encryption key. It takes the data keys from a recovery
// file. If a data key is missing in the file, or the file belongs to another database, Recover fails and changes
// nothing.
func Recover(ctx context.Context, file, identity io.Reader, provider *Provider, settings Settings) error {
	held, err := readRecovery(file, identity)
	if err != nil {
		return err
	}
	stored, err := settings.Setting(ctx, dataKeySetting)
	if err != nil {
		return fmt.Errorf("read the data keys: %w", err)
	}
	var in storedRing
	if !isRing(stored) || json.Unmarshal(stored, &in) != nil {
		return errors.New("the database has no data keys of this version; a recovery file cannot open others")
	}
	r := &ring{stored: stored, generation: in.Generation, sealed: true}
	copy(r.label[:], held.Label)
	for _, entry := range in.Keys {
		k := &dataKey{createdAt: keyserver.FromMicros(entry.CreatedAt), retiredAt: keyserver.FromMicros(entry.RetiredAt), state: entry.State}
		id, err := hex.DecodeString(entry.ID)
		if err != nil || copy(k.id[:], id) != len(k.id) {
			return errNotOurs
		}
		r.keys = append(r.keys, k)
		if k.state == keyserver.DataKeyRetired {
			continue
		}
		key, ok := held.Keys[entry.ID]
		if !ok || len(key) != dataKeyLen {
			return fmt.Errorf("the recovery file does not contain the data key %s of this database: it belongs to another database, or is older than the data key; nothing was changed", entry.ID)
		}
		defer clear(key)
		if err := k.prepare(key); err != nil {
			return err
		}
		plain := sealedKey(k.id, k.createdAt, r.label, key)
		k.wrapped, err = providers{provider, nil}.wrap(ctx, plain)
		clear(plain)
		if err != nil {
			return err
		}
		if k.state == keyserver.DataKeyActive {
			r.active = k
		}
	}
	if r.active == nil {
		return errNotOurs
	}
	if mac, err := in.sum(r.active.seal); err != nil || !hmac.Equal(mac, in.MAC) {
		return errNotOurs
	}
	n := r.next()
	if err := n.encode(); err != nil {
		return err
	}
	replaced, err := settings.ReplaceSetting(ctx, dataKeySetting, stored, n.stored)
	if err == nil && !replaced {
		err = errors.New("another process has changed the data keys at the same time; stop every server, and try again")
	}
	return err
}

func readRecovery(file, identity io.Reader) (recovery, error) {
	identities, err := age.ParseIdentities(io.LimitReader(identity, maxRecovery))
	if err != nil {
		return recovery{}, errors.New("--identity: the file has no age identity; it must have a line that begins with AGE-SECRET-KEY-") // err may contain the identity
	}
	opened, err := age.Decrypt(io.LimitReader(file, maxRecovery), identities...)
	if err != nil {
		return recovery{}, errors.New("--recovery: the file cannot be decrypted with this identity; it is for another recipient, or damaged")
	}
	text, err := io.ReadAll(io.LimitReader(opened, maxRecovery))
	defer clear(text)
	var held recovery
	if err != nil || json.Unmarshal(text, &held) != nil || held.Version != recoveryVersion || len(held.Label) != labelLen {
		return recovery{}, errors.New("--recovery: the file is not a recovery file of this program, or is damaged")
	}
	return held, nil
}
