package sqlstore

import (
	"context"
	"log/slog"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// KeyRecord is a key at rest.
type KeyRecord struct {
	ID        keyserver.ID
	Algorithm keyserver.Algorithm
	KeyBytes  int
	Wrapped   []byte // as package custody wrapped it
	ACL       keyserver.ID
	CreatedAt time.Time // to the microsecond
}

// String hides the wrapped bytes from every formatting verb.
func (k KeyRecord) String() string { return "key " + k.ID.Hex() + " (" + string(k.Algorithm) + ")" }

// GoString hides the wrapped bytes from %#v.
func (k KeyRecord) GoString() string { return k.String() }

// LogValue hides the wrapped bytes from structured logs.
func (k KeyRecord) LogValue() slog.Value { return slog.StringValue(k.String()) }

// Key reads a key.
func (r reads) Key(ctx context.Context, id keyserver.ID) (KeyRecord, error) {
	k := KeyRecord{ID: id}
	err := r.row(ctx, `SELECT algorithm, key_bytes, wrapped, acl_id, created_at FROM stored_keys WHERE id = $1`, []any{id[:]},
		&k.Algorithm, &k.KeyBytes, &k.Wrapped, intoID(&k.ACL), intoTime{&k.CreatedAt})
	if err != nil {
		return KeyRecord{}, err
	}
	return k, nil
}

// InsertKey stores a key and the first entries of its access control list.
func (tx *Tx) InsertKey(ctx context.Context, key KeyRecord, entries ...keyserver.ACLEntry) error {
	_, err := tx.exec(ctx, `INSERT INTO stored_keys (id, algorithm, key_bytes, wrapped, acl_id, created_at)
		VALUES ($1, $2, $3, $4, $5, $6)`, key.ID[:], string(key.Algorithm), key.KeyBytes, orEmpty(key.Wrapped), key.ACL[:], key.CreatedAt.UnixMicro())
	if err != nil {
		return err
	}
	for _, e := range entries {
		e.ACL = key.ACL
		if err := tx.putACLEntry(ctx, e); err != nil {
			return err
		}
	}
	tx.record(keyserver.ChangeKey, key.ID, keyserver.Created)
	return nil
}
