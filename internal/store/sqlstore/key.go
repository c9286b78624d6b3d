package sqlstore

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// KeyRecord is a stored key with its encrypted bytes.
type KeyRecord struct {
	ID        keyserver.ID
	Algorithm keyserver.Algorithm
	KeyBytes  int
	Wrapped   []byte // encrypted by package keyring
	ACL       keyserver.ID
	CreatedAt time.Time // with microsecond precision
	Life      keyserver.KeyLife
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

// KeyWithACL reads a key and its ACL in one query.
func (r reads) KeyWithACL(ctx context.Context, id keyserver.ID) (KeyRecord, keyserver.ACL, error) {
	k, err := r.storedKey(ctx, id)
	return k.KeyRecord, k.acl(), err
}

// storedKey is a key with all data that its row MAC covers.
type storedKey struct {
	KeyRecord
	entries, purged []keyserver.ACLEntry // sorted by principal
	mac             []byte
}

func (k *storedKey) row() *rowmac.Row {
	return rowmac.StoredKey(rowmac.KeyRow{
		ID: k.ID, Algorithm: k.Algorithm, KeyBytes: k.KeyBytes, Wrapped: sqldb.OrEmpty(k.Wrapped), ACL: k.ACL, CreatedAt: k.CreatedAt, Life: k.Life,
		Entries: k.entries, Purged: k.purged,
	})
}

func (k *storedKey) acl() keyserver.ACL { return keyserver.ACL{ID: k.ACL, Entries: k.entries} }

// put adds an entry. It replaces an existing entry of the principal, but keeps its id.
func (k *storedKey) put(e keyserver.ACLEntry) {
	i := slices.IndexFunc(k.entries, func(other keyserver.ACLEntry) bool { return other.Principal == e.Principal })
	if i < 0 {
		k.entries = append(k.entries, e)
		return
	}
	e.ID = k.entries[i].ID
	k.entries[i] = e
}

// storedKeyQuery returns a query for the keys that where selects, with their ACL
// entries. It is one statement, so that all rows are consistent. The rows of keys
// come before the rows of entries.
func storedKeyQuery(where string) string {
	entries := func(part, table string) string {
		return `UNION ALL SELECT ` + part + `, k.id, e.id, e.system_id, e.principal_id, e.rights, e.max_usage, e.used, e.user_right,
			e.start_stamp, e.end_stamp, '', NULL, NULL, '', NULL, 0, 0, 0, 0 FROM stored_keys k JOIN ` + table + ` e ON e.acl_id = k.acl_id WHERE ` + where + ` `
	}
	return `SELECT 0 AS part, k.id AS owner, k.acl_id AS id, k.key_bytes AS system_id, k.id AS principal_id, k.created_at AS rights, 0 AS max_usage,
			0 AS used, 0 AS user_right, k.id AS start_stamp, k.id AS end_stamp, k.algorithm AS algorithm, k.wrapped AS wrapped, k.mac AS mac,
			k.state AS state, k.lineage AS lineage, k.generation AS generation, k.exportable AS exportable, k.state_at AS state_at, k.destroy_at AS destroy_at
			FROM stored_keys k WHERE ` + where + ` ` +
		entries(`1`, `acl_entries`) + entries(`2`, `purged_acl_entries`) + `ORDER BY part, owner, system_id, principal_id`
}

var (
	storedKeyByID  = storedKeyQuery(`k.id = $1`)
	storedKeysByID = storedKeyQuery(`k.id IN (` + sqldb.Numbered() + `)`)
)

func (r reads) storedKey(ctx context.Context, id keyserver.ID) (storedKey, error) {
	list, err := r.storedKeys(ctx, storedKeyByID, id[:])
	if err == nil && len(list) == 0 {
		err = sqldb.ErrNotFound
	}
	if err != nil {
		return storedKey{}, err
	}
	return list[0], nil
}

func (r reads) storedKeys(ctx context.Context, query string, args ...any) ([]storedKey, error) {
	list := []storedKey{}
	at := map[keyserver.ID]int{}
	err := r.sql.Each(ctx, query, args, func(row sqldb.Scanner) error {
		var part int
		var owner keyserver.ID
		var system, rights int64
		var start, end, wrapped, mac []byte
		var algorithm string
		var e keyserver.ACLEntry
		var life storedLife
		if err := row.Scan(&part, sqldb.IntoID(&owner), sqldb.IntoID(&e.ID), &system, sqldb.IntoID(&e.Principal.ID), &rights, &e.MaxUsage, &e.Used, &e.UserRight,
			&start, &end, &algorithm, &wrapped, &mac,
			&life.state, sqldb.OptionalID(&life.lineage), &life.generation, &life.exportable, &life.stateAt, &life.destroyAt); err != nil {
			return err
		}
		if part == 0 {
			at[owner] = len(list)
			list = append(list, storedKey{
				KeyRecord: KeyRecord{
					ID: owner, Algorithm: keyserver.Algorithm(algorithm), KeyBytes: int(system), Wrapped: wrapped, ACL: e.ID, CreatedAt: time.UnixMicro(rights).UTC(),
					Life: life.of(owner),
				},
				entries: []keyserver.ACLEntry{}, mac: mac,
			})
			return nil
		}
		k := &list[at[owner]]
		e.ACL, e.Principal.System, e.Rights = k.ACL, keyserver.SystemID(system), keyserver.Rights(rights) //nolint:gosec // as they were stored
		if err := errors.Join(sqldb.IntoStamp(&e.Start).Scan(start), sqldb.IntoStamp(&e.End).Scan(end)); err != nil {
			return err
		}
		if part == 1 {
			k.entries = append(k.entries, e)
		} else {
			k.purged = append(k.purged, e)
		}
		return nil
	})
	for i := 0; i < len(list) && err == nil; i++ {
		err = r.sql.CheckMAC(list[i].row(), list[i].mac)
	}
	if err != nil {
		return nil, err
	}
	return list, nil
}

// InsertKey stores a key and the first entries of its ACL. It replaces a zero Life by
// keyserver.FirstLife.
func (tx *Tx) InsertKey(ctx context.Context, key KeyRecord, entries ...keyserver.ACLEntry) error {
	if key.Life == (keyserver.KeyLife{}) {
		key.Life = keyserver.FirstLife(key.ID)
	}
	k := storedKey{KeyRecord: key}
	for _, e := range entries {
		e.ACL = key.ACL
		k.put(e)
	}
	life := columnsOf(key.ID, key.Life)
	_, err := tx.sql.Exec(ctx, `INSERT INTO stored_keys (id, algorithm, key_bytes, wrapped, acl_id, created_at, mac,
			state, lineage, generation, exportable, state_at, destroy_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`, key.ID[:], string(key.Algorithm), key.KeyBytes, sqldb.OrEmpty(key.Wrapped), key.ACL[:],
		key.CreatedAt.UnixMicro(), tx.sql.MAC(k.row()), life.state, sqldb.OrNull(life.lineage), life.generation, life.exportable, life.stateAt, life.destroyAt)
	if err != nil {
		return err
	}
	for _, e := range k.entries {
		if err := tx.putACLEntry(ctx, e); err != nil {
			return err
		}
	}
	tx.changes.Record(keyserver.ChangeKey, key.ID, keyserver.Created)
	if key.Life.Lineage != key.ID { // the first key has the metadata of the lineage
		tx.changes.Record(keyserver.ChangeKey, key.Life.Lineage, keyserver.Updated)
	}
	return nil
}

// changeKey stores the MAC of a key after change. The caller must write changed ACL
// entries after that call, because changeKey reads the key and checks its old MAC.
func (tx *Tx) changeKey(ctx context.Context, id keyserver.ID, change func(k *storedKey)) error {
	k, err := tx.storedKey(ctx, id)
	if err != nil {
		return err
	}
	change(&k)
	return tx.sql.ExecOne(ctx, `UPDATE stored_keys SET mac = $1 WHERE id = $2`, tx.sql.MAC(k.row()), id[:])
}

// changeKeys is changeKey for the keys that a query selects. It records the changes
// of the keys (recordKeys).
func (tx *Tx) changeKeys(ctx context.Context, change func(k *storedKey), query string, args ...any) error {
	key := tx.sql.Key()
	if key == nil {
		return sqldb.ErrNoRowKey
	}
	keys, err := tx.sql.IDs(ctx, query, args...)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(keys, sqldb.LookupSize) {
		list, err := tx.storedKeys(ctx, storedKeysByID, sqldb.Lookup(part)...)
		if err != nil {
			return err
		}
		ids, macs := make([][]byte, len(list)), make([][]byte, len(list))
		for i := range list {
			change(&list[i])
			ids[i], macs[i] = list[i].ID[:], key.Sum(list[i].row())
		}
		if err := tx.sql.Dialect.SetKeyMACs(ctx, tx.sql, ids, macs); err != nil {
			return err
		}
	}
	tx.recordKeys(keys)
	return nil
}
