package sqlstore

import (
	"context"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// SessionFilter selects sessions.
type SessionFilter struct {
	// Principal is whose rights the sessions have, or who acts in them; zero
	// selects everybody's.
	Principal keyserver.ID
	After     keyserver.ID // those behind this id
	Limit     int
	Now       time.Time     // sessions that have reached their end by then are left out
	Idle      time.Duration // and those that were not used for so long
}

// Sessions reads sessions by id, without their hashes.
func (r reads) Sessions(ctx context.Context, f SessionFilter) ([]SessionRecord, error) {
	where := `WHERE id > $3 AND ` + alive
	args := []any{f.Now.UnixMicro(), f.Now.Add(-f.Idle).UnixMicro(), f.After[:], f.Limit}
	if !f.Principal.IsZero() {
		where += ` AND (principal_id = $5 OR actor_id = $5)`
		args = append(args, f.Principal[:])
	}
	var list []SessionRecord
	err := r.each(ctx, selectSession+where+` ORDER BY id LIMIT $4`, args, func(row scanner) error {
		var s SessionRecord
		var mac []byte
		if err := row.Scan(s.columns(&mac)...); err != nil {
			return err
		}
		err := r.sessionAgrees(s, mac)
		s.Hash = [32]byte{}
		list = append(list, s)
		return err
	})
	return list, err
}

// withMade does something to the live sessions of a condition, with all that were
// made from them, and from those.
func withMade(condition, do string) string {
	return `WITH RECURSIVE made(id) AS (
			SELECT id FROM sessions WHERE ` + condition + `
			UNION SELECT s.id FROM sessions s JOIN made ON s.parent_id = made.id)
		` + do + ` WHERE ended = 0 AND id IN (SELECT id FROM made) RETURNING id`
}

var (
	deleteSession    = withMade(`id = $1`, `DELETE FROM sessions`)
	deleteSessionsOf = withMade(`principal_id = $1 AND system_id = $2 OR actor_id = $1 AND actor_system = $2`, `DELETE FROM sessions`)
	closeSessionsOf  = withMade(`principal_id = $1 OR actor_id = $1`, `UPDATE sessions SET ended = 1, mac = NULL`)
)

// DeleteSession ends a session with all that were made from it, and answers how
// many there were: ErrNotFound where there is none.
func (tx *Tx) DeleteSession(ctx context.Context, id keyserver.ID) (int, error) {
	gone, err := tx.deleteSessions(ctx, deleteSession, id[:])
	if err == nil && gone == 0 {
		err = ErrNotFound
	}
	return gone, err
}

// DeleteSessionsOf ends every session of a principal, also those in which it
// acts with another's rights and those that were made from them, and answers
// how many there were.
func (tx *Tx) DeleteSessionsOf(ctx context.Context, principal keyserver.PrincipalRef) (int, error) {
	return tx.deleteSessions(ctx, deleteSessionsOf, principal.ID[:], int64(principal.System))
}

// closeSessionsOf ends every session of a principal as DeleteSessionsOf does, but
// keeps what they were.
func (tx *Tx) closeSessionsOf(ctx context.Context, principal keyserver.ID) error {
	_, err := tx.deleteSessions(ctx, closeSessionsOf, principal[:])
	return err
}
