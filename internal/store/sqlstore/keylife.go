package sqlstore

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// storedLife has the columns of a keyserver.KeyLife. lineage is zero for the first key
// of a lineage.
type storedLife struct {
	state              string
	lineage            keyserver.ID
	generation         int
	exportable         int64
	stateAt, destroyAt int64 // microseconds, 0 for none
}

func (l storedLife) of(key keyserver.ID) keyserver.KeyLife {
	life := keyserver.KeyLife{
		State: keyserver.KeyState(l.state), Lineage: l.lineage, Generation: l.generation, Exportable: l.exportable != 0,
		StateAt: keyserver.FromMicros(l.stateAt), DestroyAt: keyserver.FromMicros(l.destroyAt),
	}
	if life.Lineage.IsZero() {
		life.Lineage = key
	}
	return life
}

func columnsOf(key keyserver.ID, life keyserver.KeyLife) storedLife {
	columns := storedLife{
		state: string(life.State), lineage: life.Lineage, generation: life.Generation, exportable: sqldb.Flag(life.Exportable),
		stateAt: keyserver.Micros(life.StateAt), destroyAt: keyserver.Micros(life.DestroyAt),
	}
	if life.Lineage == key {
		columns.lineage = keyserver.ID{}
	}
	return columns
}

var keysOfLineage = storedKeyQuery(`(k.id = $1 OR k.lineage = $1)`)

// KeyLineage reads the keys of a lineage, oldest first. first is the first key of the
// lineage. For any other key, it returns none.
func (r reads) KeyLineage(ctx context.Context, first keyserver.ID) ([]KeyRecord, error) {
	list, err := r.storedKeys(ctx, keysOfLineage, first[:])
	if err != nil {
		return nil, err
	}
	line := make([]KeyRecord, 0, len(list))
	for _, k := range list {
		if k.Life.Lineage == first {
			line = append(line, k.KeyRecord)
		}
	}
	slices.SortFunc(line, func(a, b KeyRecord) int { return a.Life.Generation - b.Life.Generation })
	return line, nil
}

// newestOfLineage selects the newest successor of a key. It does not find the first key of a lineage, because that
// key's column lineage is NULL.
const newestOfLineage = `SELECT id FROM stored_keys WHERE lineage = $1 ORDER BY generation DESC LIMIT 1`

// NewestOfLineage returns the newest key of the lineage whose oldest key is first.
func (r reads) NewestOfLineage(ctx context.Context, first keyserver.ID) (keyserver.ID, error) {
	newest := first
	err := r.sql.Row(ctx, newestOfLineage, []any{first[:]}, sqldb.IntoID(&newest))
	if errors.Is(err, sqldb.ErrNotFound) {
		err = nil
	}
	return newest, err
}

// SetKeyLife stores the state of a key, StateAt and DestroyAt. Other fields of the life cycle never change. If the
// state is destroyed, it deletes the bytes of the key.
func (tx *Tx) SetKeyLife(ctx context.Context, id keyserver.ID, life keyserver.KeyLife) error {
	k, err := tx.storedKey(ctx, id)
	if err != nil {
		return err
	}
	k.Life.State, k.Life.StateAt, k.Life.DestroyAt = life.State, life.StateAt, life.DestroyAt
	if life.State == keyserver.KeyDestroyed {
		k.Wrapped = nil
		if err := tx.sql.ExecOne(ctx, `UPDATE leases SET until = 1 WHERE name = 'keyErase'`); err != nil {
			return err
		}
	}
	columns := columnsOf(id, k.Life)
	tx.changes.Record(keyserver.ChangeKey, id, keyserver.Updated)
	return tx.sql.ExecOne(ctx, `UPDATE stored_keys SET state = $1, state_at = $2, destroy_at = $3, wrapped = $4, mac = $5 WHERE id = $6`,
		columns.state, columns.stateAt, columns.destroyAt, sqldb.OrEmpty(k.Wrapped), tx.sql.MAC(k.row()), id[:])
}

// KeysEnding returns up to limit keys that must be destroyed at or before the time by,
// earliest first.
func (r reads) KeysEnding(ctx context.Context, by time.Time, limit int) ([]keyserver.ID, error) {
	return r.sql.IDs(ctx, `SELECT id FROM stored_keys WHERE destroy_at > 0 AND destroy_at <= $1 ORDER BY destroy_at LIMIT $2`, by.UnixMicro(), limit)
}

// Erase removes the bytes of destroyed keys from the database files, as far as the
// database supports that. It returns false if an open read prevents that. The caller
// must then retry later.
func (s *Store) Erase(ctx context.Context) (done bool, err error) {
	var owed int64
	if err := s.db.Row(ctx, `SELECT until FROM leases WHERE name = 'keyErase'`, nil, &owed); err != nil || owed == 0 {
		return err == nil, err
	}
	if done, err = s.db.Dialect().Erase(ctx, s.db); err != nil || !done {
		return false, err
	}
	_, err = s.db.ExecCommitted(ctx, `UPDATE leases SET until = 0 WHERE name = 'keyErase'`)
	return err == nil, err
}

// ListedKey is a key with its ACL.
type ListedKey struct {
	KeyRecord
	List keyserver.ACL
}

var storedKeysByACL = storedKeyQuery(`k.acl_id IN (` + sqldb.Numbered() + `)`)

// KeysWithEntries reads up to limit keys whose ACLs have an entry for one of the
// principals, in the order of ACL ids. It begins after the ACL id after.
func (r reads) KeysWithEntries(ctx context.Context, who []keyserver.PrincipalRef, after keyserver.ID, limit int) ([]ListedKey, error) {
	var lists []keyserver.ID
	for _, p := range who {
		ids, err := r.sql.IDs(ctx, `SELECT acl_id FROM acl_entries WHERE system_id = $1 AND principal_id = $2 AND acl_id > $3 ORDER BY acl_id LIMIT $4`,
			int64(p.System), p.ID[:], after[:], limit)
		if err != nil {
			return nil, err
		}
		lists = append(lists, ids...)
	}
	lists = keyserver.NormalizeIDs(lists) // sorted, without duplicates
	list, err := r.listedKeys(ctx, storedKeysByACL, lists[:min(limit, len(lists))])
	slices.SortFunc(list, func(a, b ListedKey) int { return bytes.Compare(a.ACL[:], b.ACL[:]) })
	return list, err
}

// LineageKeysAfter reads up to limit keys of a lineage after a generation, oldest first.
func (r reads) LineageKeysAfter(ctx context.Context, first keyserver.ID, after, limit int) ([]ListedKey, error) {
	ids, err := r.sql.IDs(ctx, `SELECT id FROM stored_keys WHERE lineage = $1 AND generation > $2 ORDER BY generation LIMIT $3`, first[:], after, limit)
	if err != nil {
		return nil, err
	}
	if after == 0 {
		ids = append(ids, first)
	}
	list, err := r.listedKeys(ctx, storedKeysByID, ids)
	slices.SortFunc(list, func(a, b ListedKey) int { return a.Life.Generation - b.Life.Generation })
	list = slices.DeleteFunc(list, func(k ListedKey) bool { return k.Life.Lineage != first })
	return list[:min(limit, len(list))], err
}

func (r reads) listedKeys(ctx context.Context, query string, ids []keyserver.ID) ([]ListedKey, error) {
	var all []ListedKey
	for part := range slices.Chunk(ids, sqldb.LookupSize) {
		list, err := r.storedKeys(ctx, query, sqldb.Lookup(part)...)
		if err != nil {
			return nil, err
		}
		for _, k := range list {
			all = append(all, ListedKey{k.KeyRecord, k.acl()})
		}
	}
	return all, nil
}
