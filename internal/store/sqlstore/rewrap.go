package sqlstore

import (
	"context"
	"errors"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// ClaimRewrap gives this process the exclusive right to rewrap keys, until release is
// called. It returns nil if another process has that right.
func (s *Store) ClaimRewrap(ctx context.Context) (release func(), err error) {
	return s.db.Dialect().ClaimRewrap(ctx, s.db)
}

// underDataKey selects the keys that a data key encrypts, by the prefix of their
// encrypted bytes. The expression must be the same as in the index.
const underDataKey = `FROM stored_keys WHERE substr(wrapped, 1, 9) >= $1 AND substr(wrapped, 1, 9) < $2`

// CountWrapped counts the keys whose wrapped bytes begin with a prefix of at most 9
// bytes.
func (r reads) CountWrapped(ctx context.Context, prefix []byte) (n int64, err error) {
	err = r.sql.Row(ctx, `SELECT count(*) `+underDataKey, []any{prefix, after(prefix)}, &n)
	return n, err
}

// after returns the lowest value that is greater than all values with a prefix.
func after(prefix []byte) []byte {
	end := slices.Clone(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			break
		}
	}
	return end
}

// Refused has rows that were tampered with or cannot be rewrapped. The keys of the map are table and row id. These rows
// are not changed, and not tried again.
type Refused map[string]bool

// RewrapKeys rewraps up to limit keys whose wrapped bytes begin with a prefix, and
// returns how many. It adds rows that do not agree with their MACs, or cannot be
// rewrapped, to refused.
func (s *Store) RewrapKeys(ctx context.Context, prefix []byte, limit int, refused Refused, wrap func(id keyserver.ID, wrapped []byte) ([]byte, error)) (done int, err error) {
	err = s.Update(ctx, func(tx *Tx) error {
		done = 0
		keys, err := tx.sql.IDs(ctx, `SELECT id `+underDataKey+` LIMIT $3`, prefix, after(prefix), limit+len(refused))
		if err != nil {
			return err
		}
		keys = slices.DeleteFunc(keys, func(id keyserver.ID) bool { return refused["stored_keys "+id.Hex()] })
		for part := range slices.Chunk(keys, sqldb.LookupSize) {
			n, err := tx.rewrapKeys(ctx, part, refused, wrap)
			if err != nil {
				return err
			}
			done += n
		}
		return nil
	})
	return done, err
}

func (tx *Tx) rewrapKeys(ctx context.Context, keys []keyserver.ID, refused Refused, wrap func(id keyserver.ID, wrapped []byte) ([]byte, error)) (int, error) {
	key := tx.sql.Key()
	if key == nil {
		return 0, sqldb.ErrNoRowKey
	}
	r := tx.visiting(func(row *rowmac.Row, mac []byte) error {
		err := key.Check(row, mac)
		if errors.Is(err, rowmac.ErrMismatch) {
			refused.add(tx.sql, row, mac)
			return nil
		}
		return err
	})
	list, err := r.storedKeys(ctx, storedKeysByID, sqldb.Lookup(keys)...)
	if err != nil {
		return 0, err
	}
	var ids, wraps, macs [][]byte
	for i := range list {
		k := &list[i]
		if refused["stored_keys "+k.ID.Hex()] {
			continue
		}
		if k.Wrapped, err = wrap(k.ID, k.Wrapped); err != nil { // an error must not stop the rewrap of other keys
			refused["stored_keys "+k.ID.Hex()] = true
			continue
		}
		ids, wraps, macs = append(ids, k.ID[:]), append(wraps, k.Wrapped), append(macs, key.Sum(k.row()))
	}
	return len(ids), tx.sql.Dialect.SetKeyWraps(ctx, tx.sql, ids, wraps, macs)
}

// add records a row that does not agree with its MAC, and calls the function of OnTampered.
func (r Refused) add(in sqldb.Statements, row *rowmac.Row, mac []byte) {
	r[row.Table+" "+row.ID] = true
	in.Alarm(sqldb.FindingOf(row, mac))
}

// RowCursor is the progress of RecomputeMACs. The zero cursor is before all rows.
type RowCursor struct {
	table int
	after any
}

// RecomputeMACs checks the rows of the next page, which has at most 64 keys of a table.
// It makes new MACs for rows with a MAC of an older data key. It adds rows without a
// valid MAC to refused. It writes nothing if all MACs are current. It returns false
// after the last page.
func (s *Store) RecomputeMACs(ctx context.Context, at *RowCursor, refused Refused) (more bool, err error) {
	if at.table >= len(coveredTables) {
		return false, nil
	}
	key := s.sql.Key()
	if key == nil {
		return false, sqldb.ErrNoRowKey
	}
	t := coveredTables[at.table]
	if at.after == nil {
		at.after = t.first
	}
	keys, err := s.keysAfter(ctx, t, at.after, sqldb.LookupSize)
	if err != nil {
		return false, err
	}
	if len(keys) == 0 {
		*at = RowCursor{table: at.table + 1}
		return at.table < len(coveredTables), nil
	}
	stale := false
	look := s.visiting(func(row *rowmac.Row, mac []byte) error {
		stale = stale || !key.MadeByNewest(row, mac)
		return nil
	})
	if err := t.readPage(ctx, look, keys, refused); err != nil {
		return false, err
	}
	if stale {
		if err := s.Update(ctx, func(tx *Tx) error { return tx.recomputeMACs(ctx, t, keys, key, refused) }); err != nil {
			return false, err
		}
	}
	at.after = keys[len(keys)-1]
	return true, nil
}

// recomputeMACs makes new MACs for rows with a valid MAC of an older data key.
func (tx *Tx) recomputeMACs(ctx context.Context, t coveredTable, keys []any, key *rowmac.Key, refused Refused) error {
	var read []*rowmac.Row
	r := tx.visiting(func(row *rowmac.Row, mac []byte) error {
		if key.MadeByNewest(row, mac) {
			return nil
		}
		err := key.Check(row, mac)
		switch {
		case err == nil:
			read = append(read, row)
		case errors.Is(err, rowmac.ErrMismatch):
			refused.add(tx.sql, row, mac)
		default:
			return err
		}
		return nil
	})
	if err := t.readPage(ctx, r, keys, refused); err != nil {
		return err
	}
	for _, row := range read {
		if err := tx.setMAC(ctx, row, key.Sum(row)); err != nil {
			return err
		}
	}
	return nil
}

// readPage reads the rows of keys. It adds rows that cannot be read to refused, because
// another program has changed them.
func (t coveredTable) readPage(ctx context.Context, r reads, keys []any, refused Refused) error {
	if together, ok := readTogether[t.name]; ok {
		err := together(ctx, r, keys)
		if err == nil || ctx.Err() != nil || fault.CodeOf(err) == fault.StoreUnavailable {
			return err
		}
	}
	for _, key := range keys {
		err := t.read(ctx, r, key)
		switch {
		case err == nil, errors.Is(err, sqldb.ErrNotFound): // the row may have been removed just now
		case ctx.Err() != nil, fault.CodeOf(err) == fault.StoreUnavailable, r.sql.Failed != nil:
			return err
		default:
			refused[t.name+" "+nameOf(key)] = true
		}
	}
	return nil
}
