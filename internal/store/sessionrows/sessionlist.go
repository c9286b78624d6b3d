package sessionrows

import (
	"cmp"
	"context"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// SessionFilter selects sessions.
type SessionFilter struct {
	// Principal selects sessions with the rights of this principal, and sessions in which this principal acts; zero
	// selects all.
	Principal keyserver.ID
	After     keyserver.ID // sessions after this id
	Limit     int
	Now       time.Time     // omit sessions that have expired at this time
	Idle      time.Duration // omit sessions that were not used for this duration
}

// Sessions reads the sessions that f selects, in the order of ids, without their hashes.
func (r Reads) Sessions(ctx context.Context, f SessionFilter) ([]SessionRecord, error) {
	where := `WHERE id > $3 AND ` + alive
	args := []any{f.Now.UnixMicro(), f.Now.Add(-f.Idle).UnixMicro(), f.After[:], f.Limit}
	if !f.Principal.IsZero() {
		where += ` AND (principal_id = $5 OR actor_id = $5)`
		args = append(args, f.Principal[:])
	}
	var list []SessionRecord
	err := r.sql.Each(ctx, selectSession+where+` ORDER BY id LIMIT $4`, args, func(row sqldb.Scanner) error {
		var s SessionRecord
		var mac []byte
		if err := row.Scan(s.columns(&mac)...); err != nil {
			return err
		}
		err := r.checkSessionMAC(s, mac)
		s.Hash = [32]byte{}
		list = append(list, s)
		return err
	})
	return list, err
}

// ending has the SQL to end the sessions that a condition selects, and all sessions that were
// made from them, directly or indirectly.
type ending struct {
	statement string
	// left is a query that counts the selected sessions that have not ended.
	left string
}

func newEnding(condition, do string) ending {
	return ending{
		statement: `WITH RECURSIVE made(id) AS (
			SELECT id FROM sessions WHERE ` + condition + `
			UNION SELECT s.id FROM sessions s JOIN made ON s.parent_id = made.id)
		` + do + ` WHERE ended = 0 AND id IN (SELECT id FROM made) RETURNING id`,
		left: `SELECT count(*) FROM sessions WHERE ended = 0 AND (` + condition + `)`,
	}
}

var (
	deleteSession    = newEnding(`id = $1`, `DELETE FROM sessions`)
	deleteSessionsOf = newEnding(`principal_id = $1 AND system_id = $2 OR actor_id = $1 AND actor_system = $2`, `DELETE FROM sessions`)
	closeSessionsOf  = newEnding(`principal_id = $1 OR actor_id = $1`, `UPDATE sessions SET ended = 1, mac = NULL`)
)

// readBack is the maximum number of sessions that one statement of end checks.
const readBack = 64

// end ends sessions and returns how many. It then reads the sessions again to check that they have
// ended, because a trigger, for example, can keep rows without an error.
func (tx Writes) end(ctx context.Context, how ending, args ...any) (int, error) {
	gone, err := tx.sql.IDs(ctx, how.statement, args...)
	if err != nil {
		return 0, err
	}
	for _, id := range gone {
		tx.changes.Record(keyserver.ChangeSession, id, keyserver.Deleted)
	}
	var left int
	if err := tx.sql.Row(ctx, how.left, args, &left); err != nil || left > 0 {
		return 0, cmp.Or(err, errSessionsLeft)
	}
	for rest := gone; len(rest) > 0; {
		n := 1
		if len(rest) >= readBack {
			n = readBack
		}
		ids := make([]any, n)
		for i := range ids {
			ids[i] = rest[i][:]
		}
		for _, column := range []string{"id", "parent_id"} {
			err := tx.sql.Row(ctx, `SELECT count(*) FROM sessions WHERE ended = 0 AND `+column+` IN `+tx.sql.Dialect.Placeholders(1, n), ids, &left)
			if err != nil || left > 0 {
				return 0, cmp.Or(err, errSessionsLeft)
			}
		}
		rest = rest[n:]
	}
	return len(gone), nil
}

// errSessionsLeft rolls back a transaction in which sessions did not end.
var errSessionsLeft error = fault.New(fault.StoreTampered, "the database still has sessions that were ended; ask an operator to check its schema with doctor").
	Audited(fault.ReasonStoreTampered)

// DeleteSession ends a session and all sessions that were made from it, and returns how many.
// It returns ErrNotFound if the session does not exist.
func (tx Writes) DeleteSession(ctx context.Context, id keyserver.ID) (int, error) {
	gone, err := tx.end(ctx, deleteSession, id[:])
	if err == nil && gone == 0 {
		err = sqldb.ErrNotFound
	}
	return gone, err
}

// DeleteSessionsOf ends every session of a principal, its sessions as a delegate, and all sessions that were made from
// these sessions. It returns how many sessions it ended.
func (tx Writes) DeleteSessionsOf(ctx context.Context, principal keyserver.PrincipalRef) (int, error) {
	return tx.end(ctx, deleteSessionsOf, principal.ID[:], int64(principal.System))
}

// CloseSessionsOf ends the same sessions as DeleteSessionsOf, but keeps their rows.
func (tx Writes) CloseSessionsOf(ctx context.Context, principal keyserver.ID) error {
	_, err := tx.end(ctx, closeSessionsOf, principal[:])
	return err
}
