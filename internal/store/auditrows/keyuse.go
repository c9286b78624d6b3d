package auditrows

import (
	"context"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// KeyUse has the number of uses of a key, and the time of the last use.
type KeyUse struct {
	Uses   int64
	LastAt time.Time
}

var keyUses = `SELECT key_id, uses, last_used_at FROM key_uses WHERE key_id IN (` + sqldb.Numbered() + `)`

// KeyUses returns the uses of keys. It omits keys that were never used.
func (r Reads) KeyUses(ctx context.Context, keys []keyserver.ID) (map[keyserver.ID]KeyUse, error) {
	uses := map[keyserver.ID]KeyUse{}
	for part := range slices.Chunk(keys, sqldb.LookupSize) {
		err := r.sql.Each(ctx, keyUses, sqldb.Lookup(part), func(row sqldb.Scanner) error {
			var id keyserver.ID
			var use KeyUse
			err := row.Scan(sqldb.IntoID(&id), &use.Uses, sqldb.IntoTime(&use.LastAt))
			uses[id] = use
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return uses, nil
}

// countUses adds the uses of keys in rows to the table key_uses, with one row for each key. No
// other append runs at the same time. countUses reuses the memory of args and uses, and returns
// args.
func (t *AuditLog) countUses(ctx context.Context, in sqldb.Statements, rows []keyserver.AuditEntry, args []any, uses map[keyserver.ID]int64) ([]any, error) {
	countKeyUses(uses, rows)
	for key, n := range uses {
		args = append(args, key[:], n, rows[len(rows)-1].Time.UnixMicro())
	}
	return args, t.insertUses.Run(ctx, in, args)
}

// countKeyUses sets uses to the number of uses of each key in rows.
func countKeyUses(uses map[keyserver.ID]int64, rows []keyserver.AuditEntry) {
	clear(uses)
	for i := range rows {
		if key := rows[i].UsedKey; !key.IsZero() {
			uses[key]++
		}
	}
}
