package sessionrows

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

// SessionRecord is a stored session. It has only the hash of the session id.
type SessionRecord struct {
	ID         keyserver.ID
	Hash       [32]byte // SHA-256 of the session id
	Principal  keyserver.PrincipalRef
	Kind       keyserver.SessionKind
	CreatedAt  time.Time // all times have microsecond precision
	ExpiresAt  time.Time
	LastUsedAt time.Time
	// Certificate is the client certificate of the login from which this session was made, or zero if the login was
	// without a certificate.
	Certificate keyserver.ID
	Actor       keyserver.PrincipalRef // the delegate of a delegated session, otherwise zero
	Scope       []keyserver.HiddenLink // hidden links of the keys of a scoped session, otherwise nil
	// ScopeOperations are the operations of a scoped session. They are nil in other sessions, and in sessions from the
	// time before this column existed. MayGrant are the rights that a scoped session may give.
	ScopeOperations []keyserver.ID
	MayGrant        keyserver.Rights
	BoundKey        string // RFC 7638 thumbprint, or "" if the session is bound to no key
	// BoundCertificate is the SHA-256 of the client certificate that each request must
	// present, empty if there is none.
	BoundCertificate []byte
	Parent           keyserver.ID // the session that this one was made from, zero for a login
	Address          string       // the client address when the session was created, empty if unknown
	// Ended means that a principal of the session was disabled. The session stays unusable.
	Ended bool
}

// String omits the hash.
func (s SessionRecord) String() string {
	return "session " + s.ID.Hex() + " of " + s.Principal.String()
}

// GoString omits the hash from %#v.
func (s SessionRecord) GoString() string { return s.String() }

// LogValue omits the hash from structured logs.
func (s SessionRecord) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Session reads the session with a hash, even if the session has expired or ended.
func (r Reads) Session(ctx context.Context, hash [32]byte) (SessionRecord, error) {
	return r.session(ctx, `hash = $1`, hash[:])
}

// SessionByID reads a session by the id of its row, even if the session has expired or
// ended. The result has no hash.
func (r Reads) SessionByID(ctx context.Context, id keyserver.ID) (SessionRecord, error) {
	s, err := r.session(ctx, `id = $1`, id[:])
	s.Hash = [32]byte{}
	return s, err
}

func (r Reads) session(ctx context.Context, where string, key []byte) (s SessionRecord, err error) {
	var mac []byte
	err = r.sql.Row(ctx, selectSession+`WHERE `+where, []any{key}, s.columns(&mac)...)
	if err == nil {
		err = r.checkSessionMAC(s, mac)
	}
	if err != nil {
		return SessionRecord{}, err
	}
	return s, nil
}

const selectSession = `SELECT id, system_id, principal_id, kind, created_at, expires_at, last_used_at, bound_key, certificate_id,
		actor_system, actor_id, scope, parent_id, scope_operations, may_grant, address, ended, bound_certificate, hash, mac
	FROM sessions `

// columns returns the destinations of the columns of selectSession.
func (s *SessionRecord) columns(mac *[]byte) []any {
	return []any{
		sqldb.IntoID(&s.ID), &s.Principal.System, sqldb.IntoID(&s.Principal.ID), &s.Kind,
		sqldb.IntoTime(&s.CreatedAt), sqldb.IntoTime(&s.ExpiresAt), sqldb.IntoTime(&s.LastUsedAt), &s.BoundKey, sqldb.OptionalID(&s.Certificate),
		&s.Actor.System, sqldb.OptionalID(&s.Actor.ID), intoScope{&s.Scope}, sqldb.OptionalID(&s.Parent),
		intoIDs{&s.ScopeOperations}, &s.MayGrant, &s.Address, &s.Ended, intoSome{&s.BoundCertificate}, sqldb.IntoHash(&s.Hash), mac,
	}
}

// checkSessionMAC checks the MAC of a session, unless the session has ended. An ended
// session is unusable and has no MAC, so that no change of its row can reopen it.
func (r Reads) checkSessionMAC(s SessionRecord, mac []byte) error {
	if s.Ended {
		return nil
	}
	return r.sql.CheckMAC(s.row(), mac)
}

func (s *SessionRecord) row() *rowmac.Row {
	return rowmac.NewRow("sessions", s.ID.Hex(), s.ID[:]).Key(s.ID).Bytes(s.Hash[:]).
		Int(int64(s.Principal.System)).Key(s.Principal.ID).Text(string(s.Kind)).Time(s.CreatedAt).Time(s.ExpiresAt).
		Text(s.BoundKey).OptionalKey(s.Certificate).Int(int64(s.Actor.System)).OptionalKey(s.Actor.ID).
		Bytes(scopeColumn(s.Scope)).OptionalKey(s.Parent).Bytes(idsColumn(s.ScopeOperations)).Int(int64(s.MayGrant)).Text(s.Address).
		Bytes(slices.Clone(s.BoundCertificate)) // an empty value is nil
}

// intoSome scans bytes; an empty value becomes nil.
type intoSome struct{ dest *[]byte }

// Scan implements sql.Scanner.
func (s intoSome) Scan(src any) error {
	b, _ := src.([]byte)
	*s.dest = append([]byte(nil), b...)
	return nil
}

// intoScope scans the result of scopeColumn.
type intoScope struct{ dest *[]keyserver.HiddenLink }

// Scan implements sql.Scanner.
func (s intoScope) Scan(src any) error {
	b, _ := src.([]byte)
	*s.dest = nil
	for len(b) > 0 {
		n := int(b[0])
		if n >= len(b) {
			return errors.New("the scope of a session ends in the middle of a hidden link")
		}
		*s.dest = append(*s.dest, keyserver.HiddenLink(b[1:n+1]))
		b = b[n+1:]
	}
	return nil
}

// intoIDs scans the result of idsColumn.
type intoIDs struct{ dest *[]keyserver.ID }

// Scan implements sql.Scanner.
func (s intoIDs) Scan(src any) error {
	b, _ := src.([]byte)
	*s.dest = nil
	for ; len(b) > 0; b = b[len(keyserver.ID{}):] {
		if len(b) < len(keyserver.ID{}) {
			return errors.New("the operations of a session end in the middle of an id")
		}
		*s.dest = append(*s.dest, keyserver.ID(b[:len(keyserver.ID{})]))
	}
	return nil
}

// idsColumn concatenates ids; NULL if there are none.
func idsColumn(ids []keyserver.ID) []byte {
	var b []byte
	for _, id := range ids {
		b = append(b, id[:]...)
	}
	return b
}

// scopeColumn concatenates hidden links, each after one byte with its length; NULL if there are none.
func scopeColumn(scope []keyserver.HiddenLink) []byte {
	var b []byte
	for _, link := range scope {
		b = append(b, byte(len(link))) //nolint:gosec // at most MaxHiddenLink
		b = append(b, link...)
	}
	return b
}

// SessionCount counts the sessions that are live at now: not ended, not expired, and last used within idle. A scoped
// session need not be used itself, but the sessions from which it was made must have been used within idle.
func (r Reads) SessionCount(ctx context.Context, now time.Time, idle time.Duration) (int, error) {
	return r.liveSessions(ctx, now, idle, `1 = 1`)
}

// SessionCountOf counts the live sessions from logins of a principal. It omits sessions
// that were made from other sessions.
func (r Reads) SessionCountOf(ctx context.Context, p keyserver.PrincipalRef, now time.Time, idle time.Duration) (int, error) {
	return r.liveSessions(ctx, now, idle, `principal_id = $3 AND system_id = $4 AND parent_id IS NULL`, p.ID[:], int64(p.System))
}

// SessionCountBy counts the live sessions in which a principal acts: its own sessions,
// and delegated sessions of which it is the delegate.
func (r Reads) SessionCountBy(ctx context.Context, p keyserver.PrincipalRef, now time.Time, idle time.Duration) (int, error) {
	return r.liveSessions(ctx, now, idle, `(principal_id = $3 AND system_id = $4 AND actor_id IS NULL OR actor_id = $3 AND actor_system = $4)`,
		p.ID[:], int64(p.System))
}

// SessionCountFrom counts the live sessions that were made from a session.
func (r Reads) SessionCountFrom(ctx context.Context, parent keyserver.ID, now time.Time, idle time.Duration) (int, error) {
	return r.liveSessions(ctx, now, idle, `parent_id = $3`, parent[:])
}

// SessionCountByKind counts the live sessions of each kind.
func (r Reads) SessionCountByKind(ctx context.Context, now time.Time, idle time.Duration) (map[keyserver.SessionKind]int64, error) {
	counts := map[keyserver.SessionKind]int64{}
	err := r.sql.Each(ctx, `SELECT kind, count(*) FROM sessions WHERE `+alive+` GROUP BY kind`,
		[]any{now.UnixMicro(), now.Add(-idle).UnixMicro()}, func(row sqldb.Scanner) error {
			var kind keyserver.SessionKind
			var n int64
			err := row.Scan(&kind, &n)
			counts[kind] = n
			return err
		})
	return counts, err
}

func (r Reads) liveSessions(ctx context.Context, now time.Time, idle time.Duration, which string, args ...any) (int, error) {
	var n int
	err := r.sql.Row(ctx, `SELECT count(*) FROM sessions WHERE `+which+` AND `+alive,
		append([]any{now.UnixMicro(), now.Add(-idle).UnixMicro()}, args...), &n)
	return n, err
}

// alive is the condition that a session is live at $1. A session whose last use is not after $2 is idle. A session is
// not live if its parent or grandparent is idle. There are no further ancestors, because no session can be made from a
// session that has a grandparent.
const (
	alive = `ended = 0 AND expires_at > $1 AND (last_used_at > $2 OR scope IS NOT NULL) AND NOT ` + idleAbove

	idleAbove = `EXISTS (SELECT 1 FROM sessions p LEFT JOIN sessions g ON g.id = p.parent_id
		WHERE p.id = sessions.parent_id AND (p.last_used_at <= $2 OR g.last_used_at <= $2))`
)

// InsertSession stores a new session. It records no change, because no cache can have
// the session yet.
func (tx Writes) InsertSession(ctx context.Context, s SessionRecord) error {
	_, err := tx.sql.Exec(ctx, `INSERT INTO sessions (id, hash, system_id, principal_id, kind, created_at, expires_at, last_used_at, bound_key, certificate_id,
			actor_system, actor_id, scope, parent_id, scope_operations, may_grant, address, bound_certificate, mac)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)`, s.ID[:], s.Hash[:], int64(s.Principal.System), s.Principal.ID[:], string(s.Kind),
		s.CreatedAt.UnixMicro(), s.ExpiresAt.UnixMicro(), s.LastUsedAt.UnixMicro(), s.BoundKey, sqldb.OrNull(s.Certificate),
		int64(s.Actor.System), sqldb.OrNull(s.Actor.ID), scopeColumn(s.Scope), sqldb.OrNull(s.Parent), idsColumn(s.ScopeOperations), int64(s.MayGrant), s.Address,
		sqldb.OrEmpty(s.BoundCertificate), tx.sql.MAC(s.row()))
	return err
}

// TouchSessions stores the times of last use, unless a stored time is later: another
// replica may have recorded a later use. It ignores sessions that no longer exist.
func (tx Writes) TouchSessions(ctx context.Context, used map[keyserver.ID]time.Time) error {
	for id, at := range used {
		if _, err := tx.sql.Exec(ctx, `UPDATE sessions SET last_used_at = $1 WHERE id = $2 AND last_used_at < $1`, at.UnixMicro(), id[:]); err != nil {
			return err
		}
	}
	return nil
}

// DeleteExpiredSessions deletes up to limit sessions that are expired or idle at now, and returns how many. It records
// no change, because every process knows when sessions end. It keeps a session while sessions that were made from it
// exist, so that ending this session still ends them.
func (tx Writes) DeleteExpiredSessions(ctx context.Context, now time.Time, idle time.Duration, limit int) (int, error) {
	n, err := tx.sql.Exec(ctx, `DELETE FROM sessions WHERE id IN (
		SELECT id FROM sessions WHERE (expires_at <= $1 OR last_used_at <= $2 AND scope IS NULL OR `+idleAbove+`)
			AND NOT EXISTS (SELECT 1 FROM sessions made WHERE made.parent_id = sessions.id) LIMIT $3)`,
		now.UnixMicro(), now.Add(-idle).UnixMicro(), limit)
	return int(n), err
}
