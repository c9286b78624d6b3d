package auditrows

import (
	"cmp"
	"context"
	"database/sql"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"maps"
	"slices"
)

// auditBlock is how many audit rows a block has. Block n ends with row (n+1) * auditBlock.
// Another number needs a migration that empties both tables.
const auditBlock = 16_384

// blockKind is a column of the trail of which the blocks have the keys. Its number is in
// the database.
type blockKind int

const (
	byPrincipal blockKind = iota + 1
	byReason
	byOperation
	byOutcome
	byObject
	byAddress
	bySession
	blockKinds = iota
)

// maxBlockKey bounds a key. What begins alike is one key: rows are compared in full.
const maxBlockKey = 32

func blockKey(value []byte) []byte { return value[:min(len(value), maxBlockKey)] }

// keyInBlock is a row of audit_block_keys.
type keyInBlock struct {
	kind blockKind
	key  string
}

// blockRange is in which rows of a block, from 0, a key stands first and last.
type blockRange struct{ first, last int64 }

// blockContent is what there is to say of a block.
type blockContent struct {
	rows             int64
	earliest, latest int64
	keys             map[keyInBlock]blockRange
}

// auditBlockContent reads the rows of a block.
func (r Reads) auditBlockContent(ctx context.Context, block int64) (blockContent, error) {
	content := blockContent{keys: map[keyInBlock]blockRange{}}
	var seq, at int64
	var values [blockKinds]sql.RawBytes
	dest := []any{&seq, &at}
	for i := range values {
		dest = append(dest, &values[i])
	}
	before := block * auditBlock
	err := r.sql.Each(ctx, `SELECT seq, time, principal_id, reason, operation, outcome, object, address, session_id
		FROM audit WHERE seq > $1 AND seq <= $2`, []any{before, before + auditBlock}, func(row sqldb.Scanner) error {
		if err := row.Scan(dest...); err != nil {
			return err
		}
		if content.rows++; content.rows == 1 {
			content.earliest, content.latest = at, at
		}
		content.earliest, content.latest = min(content.earliest, at), max(content.latest, at)
		n := seq - before - 1
		for i, value := range values {
			if len(value) == 0 {
				continue
			}
			key := blockKey(value)
			of, ok := content.keys[keyInBlock{blockKind(i + 1), string(key)}]
			if !ok {
				of = blockRange{n, n}
			}
			content.keys[keyInBlock{blockKind(i + 1), string(key)}] = blockRange{min(of.first, n), max(of.last, n)}
		}
		return nil
	})
	return content, err
}

// FillAuditBlock notes what is in the oldest block that is full and was not noted, and
// answers whether there was one. Several processes may do so at the same time. The rows,
// which do not change any more, are read before anything is locked.
func (t *Trail) FillAuditBlock(ctx context.Context) (bool, error) {
	var block, end int64
	err := t.db.Row(ctx, `SELECT coalesce((SELECT max(block) + 1 FROM audit_blocks WHERE block >= 0), (SELECT first - 1 FROM audit_extent) / $1),
		(SELECT coalesce(max(seq), 0) FROM audit)`, []any{auditBlock}, &block, &end)
	if err != nil || end < (block+1)*auditBlock {
		return false, err
	}
	content, err := t.reads.auditBlockContent(ctx, block)
	if err != nil {
		return false, err
	}
	keys := slices.SortedFunc(maps.Keys(content.keys), keyInBlock.compare)
	return true, t.kind.noteBlock(ctx, block, keys, content)
}

// noteAlone notes a block. keys is called where nobody has noted it yet.
func (t *Trail) noteAlone(ctx context.Context, block int64, content blockContent, keys func(in sqldb.Statements) error) error {
	return t.db.WriteAlone(ctx, func(in sqldb.Statements) error {
		// On PostgreSQL this waits for a process that is at the same block.
		n, err := in.Exec(t.db.Dialect().StatementContext(ctx), `INSERT INTO audit_blocks (block, earliest, latest) VALUES ($1, $2, $3) ON CONFLICT (block) DO NOTHING`,
			block, content.earliest, content.latest)
		if err != nil || n == 0 {
			return err
		}
		return keys(in)
	})
}

// There are keys of a block that is not noted where a process was stopped, or somebody
// took the block away.
const deleteBlockKeys = `DELETE FROM audit_block_keys WHERE block = $1`

// keysAtOnce is how many keys one transaction writes: some milliseconds of work.
const keysAtOnce = 1024

// noteBlock lets others write between some keys and the next. A block is there only once
// it has all of them, and no other process notes it.
func (e embedded) noteBlock(ctx context.Context, block int64, keys []keyInBlock, content blockContent) error {
	if _, err := e.db.Alone(ctx, deleteBlockKeys, block); err != nil {
		return err
	}
	args := make([]any, 0, 5*keysAtOnce)
	for part := range slices.Chunk(keys, keysAtOnce) {
		args = args[:0]
		for _, k := range part {
			args = append(args, block, int64(k.kind), []byte(k.key), content.keys[k].first, content.keys[k].last)
		}
		if err := e.db.WriteAlone(ctx, func(in sqldb.Statements) error {
			return e.insertBlockKeys.Run(e.d.StatementContext(ctx), in, args)
		}); err != nil {
			return err
		}
	}
	return e.noteAlone(ctx, block, content, func(sqldb.Statements) error { return nil })
}

// noteBlock takes one way to the server and back for all keys.
func (p shared) noteBlock(ctx context.Context, block int64, keys []keyInBlock, content blockContent) error {
	var kinds, firsts, lasts []int64
	var values [][]byte
	for _, k := range keys {
		kinds, values = append(kinds, int64(k.kind)), append(values, []byte(k.key))
		firsts, lasts = append(firsts, content.keys[k].first), append(lasts, content.keys[k].last)
	}
	return p.noteAlone(ctx, block, content, func(in sqldb.Statements) error {
		if _, err := in.Exec(ctx, deleteBlockKeys, block); err != nil {
			return err
		}
		_, err := in.Exec(ctx, `INSERT INTO audit_block_keys (block, kind, key, first_row, last_row)
			SELECT $1, v.kind, v.key, v.first_row, v.last_row
			FROM unnest($2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[]) AS v(kind, key, first_row, last_row)`, block, kinds, values, firsts, lasts)
		return err
	})
}

func (k keyInBlock) compare(other keyInBlock) int {
	return cmp.Or(cmp.Compare(k.kind, other.kind), cmp.Compare(k.key, other.key))
}

// PruneAuditBlocks removes some of the blocks that have no row behind first any more, at
// most one in a transaction, and answers whether there may be more.
func (t *Trail) PruneAuditBlocks(ctx context.Context, first int64) (more bool, err error) {
	err = t.db.WriteAlone(ctx, func(in sqldb.Statements) error {
		ctx := t.db.Dialect().StatementContext(ctx)
		var block int64
		err := in.Row(ctx, `SELECT min(block) FROM audit_blocks HAVING min(block) < $1`, []any{(first - 1) / auditBlock}, &block)
		if errors.Is(err, sqldb.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		more = true
		_, err = in.Exec(ctx, `DELETE FROM audit_block_keys WHERE block <= $1`, block)
		if err == nil {
			_, err = in.Exec(ctx, `DELETE FROM audit_blocks WHERE block <= $1`, block)
		}
		return err
	})
	return more && err == nil, err
}

// DisagreeingAuditBlocks answers the first of the blocks that do not say what is in
// their rows, at most limit: filters may hide rows of those.
func (r Reads) DisagreeingAuditBlocks(ctx context.Context, limit int) ([]int64, error) {
	extent, err := r.AuditExtent(ctx)
	if err != nil {
		return nil, err
	}
	var found []int64
	if err := r.sql.Each(ctx, `SELECT block FROM audit_blocks WHERE block < 0 ORDER BY block LIMIT $1`, []any{limit}, func(row sqldb.Scanner) error {
		found = append(found, 0)
		return row.Scan(&found[len(found)-1])
	}); err != nil {
		return nil, err
	}
	begin := (extent.First - 1) / auditBlock
	for next := begin; len(found) < limit; next++ {
		block, stored, err := r.storedAuditBlock(ctx, next)
		if errors.Is(err, sqldb.ErrNotFound) {
			break
		}
		if err != nil {
			return nil, err
		}
		if next > begin && block > next { // between others, where it is taken for noted
			found = append(found, next)
			continue
		}
		next = block
		content, err := r.auditBlockContent(ctx, block)
		if err != nil {
			return nil, err
		}
		if content.earliest == stored.earliest && content.latest == stored.latest && maps.Equal(content.keys, stored.keys) {
			continue
		}
		// Unless it was removed meanwhile, with its rows.
		if still, _, err := r.storedAuditBlock(ctx, block); err == nil && still == block {
			found = append(found, block)
		} else if err != nil && !errors.Is(err, sqldb.ErrNotFound) {
			return nil, err
		}
	}
	return found, nil
}

// storedAuditBlock reads what is noted of the first block from one on.
func (r Reads) storedAuditBlock(ctx context.Context, from int64) (block int64, stored blockContent, err error) {
	stored.keys = map[keyInBlock]blockRange{}
	err = r.sql.Row(ctx, `SELECT block, earliest, latest FROM audit_blocks WHERE block >= $1 ORDER BY block LIMIT 1`, []any{from},
		&block, &stored.earliest, &stored.latest)
	if err != nil {
		return 0, stored, err
	}
	err = r.sql.Each(ctx, `SELECT kind, key, first_row, last_row FROM audit_block_keys WHERE block = $1`, []any{block}, func(row sqldb.Scanner) error {
		var k keyInBlock
		var key []byte
		var of blockRange
		err := row.Scan(&k.kind, &key, &of.first, &of.last)
		k.key = string(key)
		stored.keys[k] = of
		return err
	})
	return block, stored, err
}
