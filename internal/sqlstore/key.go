package sqlstore

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/rowmac"
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
	k, err := r.storedKey(ctx, id)
	return k.KeyRecord, err
}

// KeyWithACL reads a key and its list, as Key and ACL do.
func (r reads) KeyWithACL(ctx context.Context, id keyserver.ID) (KeyRecord, keyserver.ACL, error) {
	k, err := r.storedKey(ctx, id)
	return k.KeyRecord, k.acl(), err
}

// storedKey is a key with all that one MAC covers.
type storedKey struct {
	KeyRecord
	entries, purged []keyserver.ACLEntry // sorted by principal
	mac             []byte
}

func (k *storedKey) row() *rowmac.Row {
	return rowmac.StoredKey(rowmac.KeyRow{
		ID: k.ID, Algorithm: k.Algorithm, KeyBytes: k.KeyBytes, Wrapped: orEmpty(k.Wrapped), ACL: k.ACL, CreatedAt: k.CreatedAt,
		Entries: k.entries, Purged: k.purged,
	})
}

func (k *storedKey) acl() keyserver.ACL { return keyserver.ACL{ID: k.ACL, Entries: k.entries} }

// put stores an entry where the principal has none, and else replaces all of it
// but the id.
func (k *storedKey) put(e keyserver.ACLEntry) {
	i := slices.IndexFunc(k.entries, func(other keyserver.ACLEntry) bool { return other.Principal == e.Principal })
	if i < 0 {
		k.entries = append(k.entries, e)
		return
	}
	e.ID = k.entries[i].ID
	k.entries[i] = e
}

// storedKeyQuery reads all of it in one statement, so that it is of one moment.
// The key's own row comes first.
const storedKeyQuery = `SELECT 0 AS part, k.acl_id AS id, k.key_bytes AS system_id, k.id AS principal_id, k.created_at AS rights, 0 AS max_usage, 0 AS used,
		0 AS user_right, k.id AS start_stamp, k.id AS end_stamp, k.algorithm AS algorithm, k.wrapped AS wrapped, k.mac AS mac
		FROM stored_keys k WHERE k.id = $1
	UNION ALL SELECT 1, e.id, e.system_id, e.principal_id, e.rights, e.max_usage, e.used, e.user_right, e.start_stamp, e.end_stamp, '', NULL, NULL
		FROM stored_keys k JOIN acl_entries e ON e.acl_id = k.acl_id WHERE k.id = $1
	UNION ALL SELECT 2, e.id, e.system_id, e.principal_id, e.rights, e.max_usage, e.used, e.user_right, e.start_stamp, e.end_stamp, '', NULL, NULL
		FROM stored_keys k JOIN purged_acl_entries e ON e.acl_id = k.acl_id WHERE k.id = $1
	ORDER BY part, system_id, principal_id`

func (r reads) storedKey(ctx context.Context, id keyserver.ID) (storedKey, error) {
	k := storedKey{KeyRecord: KeyRecord{ID: id}, entries: []keyserver.ACLEntry{}}
	found := false
	err := r.each(ctx, storedKeyQuery, []any{id[:]}, func(row scanner) error {
		var part int
		var system, rights int64
		var start, end, wrapped, mac []byte
		var algorithm string
		var e keyserver.ACLEntry
		if err := row.Scan(&part, intoID(&e.ID), &system, intoID(&e.Principal.ID), &rights, &e.MaxUsage, &e.Used, &e.UserRight,
			&start, &end, &algorithm, &wrapped, &mac); err != nil {
			return err
		}
		if part == 0 {
			found = true
			k.ACL, k.KeyBytes, k.CreatedAt = e.ID, int(system), time.UnixMicro(rights).UTC()
			k.Algorithm, k.Wrapped, k.mac = keyserver.Algorithm(algorithm), wrapped, mac
			return nil
		}
		e.ACL, e.Principal.System, e.Rights = k.ACL, keyserver.SystemID(system), keyserver.Rights(rights) //nolint:gosec // as they were stored
		if err := intoStamp(&e.Start).Scan(start); err != nil {
			return err
		}
		if err := intoStamp(&e.End).Scan(end); err != nil {
			return err
		}
		if part == 1 {
			k.entries = append(k.entries, e)
		} else {
			k.purged = append(k.purged, e)
		}
		return nil
	})
	if err == nil && !found {
		err = ErrNotFound
	}
	if err == nil {
		err = r.agrees(k.row(), k.mac)
	}
	if err != nil {
		return storedKey{}, err
	}
	return k, nil
}

// InsertKey stores a key and the first entries of its access control list.
func (tx *Tx) InsertKey(ctx context.Context, key KeyRecord, entries ...keyserver.ACLEntry) error {
	k := storedKey{KeyRecord: key}
	for _, e := range entries {
		e.ACL = key.ACL
		k.put(e)
	}
	_, err := tx.exec(ctx, `INSERT INTO stored_keys (id, algorithm, key_bytes, wrapped, acl_id, created_at, mac)
		VALUES ($1, $2, $3, $4, $5, $6, $7)`, key.ID[:], string(key.Algorithm), key.KeyBytes, orEmpty(key.Wrapped), key.ACL[:], key.CreatedAt.UnixMicro(),
		tx.mac(k.row()))
	if err != nil {
		return err
	}
	for _, e := range k.entries {
		if err := tx.putACLEntry(ctx, e); err != nil {
			return err
		}
	}
	tx.record(keyserver.ChangeKey, key.ID, keyserver.Created)
	return nil
}

// changeKey writes the MAC of a key as change leaves it. It comes before the
// entries are written: the key is read before, and has to agree.
func (tx *Tx) changeKey(ctx context.Context, id keyserver.ID, change func(k *storedKey)) error {
	k, err := tx.storedKey(ctx, id)
	if err != nil {
		return err
	}
	change(&k)
	return tx.execOne(ctx, `UPDATE stored_keys SET mac = $1 WHERE id = $2`, tx.mac(k.row()), id[:])
}

// changeKeys is changeKey for the keys that a query selects, and notes that they
// changed.
func (tx *Tx) changeKeys(ctx context.Context, change func(k *storedKey), query string, args ...any) error {
	keys, err := tx.ids(ctx, query, args...)
	if err != nil {
		return err
	}
	for _, id := range keys {
		if err := tx.changeKey(ctx, id, change); err != nil {
			return err
		}
	}
	tx.recordKeys(keys)
	return nil
}
