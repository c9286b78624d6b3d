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

// auditBlock is the number of audit rows of a block. A block is an index of these rows for
// filters. Block n ends with row (n+1) * auditBlock. A change of this number needs a
// migration that empties the tables audit_blocks and audit_block_keys.
const auditBlock = 16_384

// blockKind is a column of the audit log. The values of the column are keys in a block. The
// database stores the number of the kind.
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

// maxBlockKey is the maximum length of a key in bytes. Longer values with the same prefix
// share a key, so a query also compares the complete values of the rows.
const maxBlockKey = 32

func blockKey(value []byte) []byte { return value[:min(len(value), maxBlockKey)] }

// keyInBlock is a key of a block: a column and a value.
type keyInBlock struct {
	kind blockKind
	key  string
}

// blockRange has the first and the last row in a block that have a key. The rows of a block are numbered from 0.
type blockRange struct{ first, last int64 }

// blockContent is the content of a block: its number of rows, times and keys.
type blockContent struct {
	rows             int64
	earliest, latest int64
	keys             map[keyInBlock]blockRange
}

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

// FillAuditBlock stores the oldest block that has all its rows and is not stored yet. It reports whether there was such
// a block. Several processes may call it at the same time. It reads the rows without a lock, because these rows no
// longer change.
func (t *AuditLog) FillAuditBlock(ctx context.Context) (bool, error) {
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

// noteAlone stores a block and calls the function keys in one transaction. It does nothing
// if another process has stored the block.
func (t *AuditLog) noteAlone(ctx context.Context, block int64, content blockContent, keys func(in sqldb.Statements) error) error {
	return t.db.WriteAlone(ctx, func(in sqldb.Statements) error {
		// On PostgreSQL this waits for a process that stores the same block.
		n, err := in.Exec(t.db.Dialect().StatementContext(ctx), `INSERT INTO audit_blocks (block, earliest, latest) VALUES ($1, $2, $3) ON CONFLICT (block) DO NOTHING`,
			block, content.earliest, content.latest)
		if err != nil || n == 0 {
			return err
		}
		return keys(in)
	})
}

// deleteBlockKeys deletes the keys of a block that is not stored. Such keys exist if a process stopped before it stored
// the block, or if the block was deleted.
const deleteBlockKeys = `DELETE FROM audit_block_keys WHERE block = $1`

// keysAtOnce is the number of keys in one transaction, which takes some milliseconds.
const keysAtOnce = 1024

// noteBlock implements kind. It writes the keys in several transactions, so that other writes do not wait for all of
// them. It stores the block last, because a stored block must be complete. No other process stores blocks.
func (e embedded) noteBlock(ctx context.Context, block int64, keys []keyInBlock, content blockContent) error {
	if _, err := e.db.ExecCommitted(ctx, deleteBlockKeys, block); err != nil {
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

// noteBlock implements kind. It sends all keys in one statement.
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

// PruneAuditBlocks removes the oldest block if all its rows are before first, and reports
// whether there may be more such blocks.
func (t *AuditLog) PruneAuditBlocks(ctx context.Context, first int64) (more bool, err error) {
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

// DisagreeingAuditBlocks returns the numbers of up to limit blocks that contradict their rows.
// Queries with filters may miss rows of such blocks.
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
		if next > begin && block > next { // a block before a stored block is missing: queries assume that it is stored
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
		// It is no error if the block and its rows were pruned during this check.
		if still, _, err := r.storedAuditBlock(ctx, block); err == nil && still == block {
			found = append(found, block)
		} else if err != nil && !errors.Is(err, sqldb.ErrNotFound) {
			return nil, err
		}
	}
	return found, nil
}

// storedAuditBlock reads the first stored block whose number is at least from.
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
