package auditrows

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

const (
	// PartitionRows is the number of audit rows of a partition. The first partition may have more rows if the database
	// was created before migration 30. That migration contains the same number.
	PartitionRows = 1 << 20
	// partitionsAhead is the number of partitions that are created before they are needed.
	// Rows after the last partition go to the default partition.
	partitionsAhead = 4
	// PartitionPrefix is the prefix of the names of partitions.
	PartitionPrefix = "audit_until_"
	defaultPage     = 1000 // rows of the default partition that one statement deletes
)

// sweep implements kind. It drops a partition whose last row is before first, or creates
// the next partition. Both changes need a lock that blocks all statements on the table.
// Therefore sweep waits at most 100 ms for the lock, and the next call tries again.
func (p shared) sweep(ctx context.Context, first int64) (more bool, err error) {
	var last, end, stray int64
	err = p.db.Each(ctx, `SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = 'audit'::regclass ORDER BY c.relname`, nil, func(row sqldb.Scanner) error {
		var name string
		if err := row.Scan(&name); err != nil {
			return err
		}
		n, err := strconv.ParseInt(strings.TrimPrefix(name, PartitionPrefix), 10, 64)
		if err != nil {
			return nil //nolint:nilerr // the default partition has no number
		}
		if n < first && end == 0 {
			end = n
		}
		last = max(last, n)
		return nil
	})
	if err != nil {
		return false, err
	}
	if end > 0 {
		return p.alter(ctx, `DROP TABLE `+Partition(end))
	}
	var given int64
	err = p.db.Row(ctx, `SELECT value, (SELECT coalesce(max(seq), 0) FROM audit_default) FROM sequences WHERE name = 'audit'`, nil, &given, &stray)
	if err != nil {
		return false, err
	}
	if last = max(last, (stray+PartitionRows-1)/PartitionRows*PartitionRows); last < given+partitionsAhead*PartitionRows {
		name := Partition(last + PartitionRows)
		return p.alter(ctx,
			`CREATE TABLE `+name+` (LIKE audit INCLUDING DEFAULTS INCLUDING INDEXES)`,
			fmt.Sprintf(`ALTER TABLE audit ATTACH PARTITION %s FOR VALUES FROM (%d) TO (%d)`, name, last+1, last+PartitionRows+1))
	}
	if stray == 0 {
		return false, nil
	}
	n, err := p.db.ExecCommitted(ctx, `DELETE FROM audit_default WHERE seq IN (SELECT seq FROM audit_default WHERE seq < $1 ORDER BY seq LIMIT $2)`, first, defaultPage)
	return n > 0, err
}

// Partition returns the name of the partition that ends with the row last.
func Partition(last int64) string { return fmt.Sprintf("%s%020d", PartitionPrefix, last) }

// alter changes the partitions, and reports whether it succeeded. It is not an error if alter cannot get a lock.
func (p shared) alter(ctx context.Context, texts ...string) (bool, error) {
	err := p.db.WriteAlone(ctx, func(in sqldb.Statements) error {
		for _, text := range append([]string{`SET LOCAL lock_timeout = '100ms'`}, texts...) {
			if _, err := in.Exec(ctx, text); err != nil {
				return err
			}
		}
		return nil
	})
	if fault.CodeOf(err) == fault.StoreUnavailable { // usually the lock timed out
		return false, nil
	}
	return err == nil, err
}
