package session

import (
	"context"
	"errors"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sessionrows"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

const defaultPage = 100

// Filter selects live sessions.
type Filter struct {
	// Principal selects the sessions in which the principal acts, and the delegated sessions that have its rights. Zero
	// selects all sessions.
	Principal keyserver.ID
	After     keyserver.ID // the last session of the previous page
	Limit     int
}

// Page is a page of sessions, sorted by id.
type Page struct {
	Sessions []Summary
	Next     keyserver.ID // the value of After for the next page; zero on the last page
}

// Summary describes a session in a list.
type Summary struct {
	ID        keyserver.ID
	Kind      keyserver.SessionKind
	Principal keyserver.Principal
	Actor     keyserver.PrincipalRef // set only in a delegated session
	BoundKey  string
	// BoundCertificate is the same as in Info.
	BoundCertificate []byte
	Address          string // of the login, empty if unknown
	CreatedAt        time.Time
	LastUsedAt       time.Time // as known to this process; another replica may know a later time
	Expiry
	MadeFrom keyserver.ID // the parent; zero if the session was opened without another session
}

// Expiry contains the times at which a session ends.
type Expiry struct {
	ExpiresAt     time.Time
	IdleExpiresAt time.Time // if the session is not used again before
}

func (m *Manager) expiry(record sessionrows.SessionRecord, lastUsed time.Time) Expiry {
	e := Expiry{record.ExpiresAt, lastUsed.Add(m.Idle).UTC()}
	if record.Kind == keyserver.ScopedSession || e.IdleExpiresAt.After(e.ExpiresAt) {
		e.IdleExpiresAt = e.ExpiresAt
	}
	return e
}

// List returns the live sessions. If another replica has used a session but not yet written the last use, the listed
// last use is too old, but the session is still listed.
func (m *Manager) List(ctx context.Context, by keyserver.Caller, f Filter) (page Page, err error) {
	g := keyserver.ExternalOperation{Operation: keyserver.OpListSessions, Own: isOwn(by, f.Principal)}
	if !f.Principal.IsZero() {
		g.Object = f.Principal.Hex()
	}
	err = m.Authorizer.Guard(ctx, by, g, func() error {
		limit := f.Limit
		if limit == 0 {
			limit = defaultPage
		}
		records, err := m.Store.Sessions(ctx, sessionrows.SessionFilter{
			Principal: f.Principal, After: f.After, Limit: limit + 1, Now: m.Clock(), Idle: m.Idle + m.Idle/touchPeriods,
		})
		if err != nil {
			return err
		}
		if len(records) > limit {
			records = records[:limit]
			page.Next = records[limit-1].ID
		}
		page.Sessions, err = m.listed(ctx, records)
		return err
	})
	return page, err
}

func (m *Manager) listed(ctx context.Context, records []sessionrows.SessionRecord) ([]Summary, error) {
	ids := make([]keyserver.ID, len(records))
	for i, r := range records {
		ids[i] = r.Principal.ID
	}
	principals, err := m.Store.PrincipalsByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	known := map[keyserver.PrincipalRef]keyserver.Principal{}
	for _, p := range principals {
		known[p.Ref()] = p
	}
	list := make([]Summary, len(records))
	for i, r := range records {
		p, ok := known[r.Principal]
		if !ok {
			p = keyserver.Principal{ID: r.Principal.ID, System: r.Principal.System}
		}
		used := m.lastUse(r)
		list[i] = Summary{
			ID: r.ID, Kind: r.Kind, Principal: p, Actor: r.Actor, BoundKey: r.BoundKey, BoundCertificate: r.BoundCertificate, Address: r.Address,
			CreatedAt: r.CreatedAt, LastUsedAt: used, Expiry: m.expiry(r, used), MadeFrom: r.Parent,
		}
	}
	return list, nil
}

// lastUse returns the last use of a session: the later of the time in the store and the time in this process.
func (m *Manager) lastUse(r sessionrows.SessionRecord) time.Time {
	m.mu.RLock()
	h, ok := m.byID[r.ID]
	m.mu.RUnlock()
	if ok {
		if used := time.Unix(0, h.lastUsed.Load()).UTC(); used.After(r.LastUsedAt) {
			return used
		}
	}
	return r.LastUsedAt
}

// EndOne ends any session and all sessions that were derived from it. It returns their number. To end their own
// sessions of any kind, callers need no role.
func (m *Manager) EndOne(ctx context.Context, by keyserver.Caller, id keyserver.ID) (ended int, err error) {
	record, err := m.Store.SessionByID(ctx, id)
	if err != nil && !errors.Is(err, sqlstore.ErrNotFound) {
		return 0, err
	}
	own := err == nil && (isOwn(by, record.Principal.ID) || isOwn(by, record.Actor.ID))
	g := keyserver.ExternalOperation{Operation: keyserver.OpEndSessions, Object: id.Hex(), Own: own}
	err = m.Authorizer.Guard(ctx, by, g, func() error {
		return m.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			ended, err = tx.DeleteSession(ctx, id)
			return missing(err, "no session has the id %s", id)
		})
	})
	return ended, err
}

// EndAll ends every session of a principal, even sessions in which it acts for another principal. It returns their
// number.
func (m *Manager) EndAll(ctx context.Context, by keyserver.Caller, principal keyserver.ID) (ended int, err error) {
	g := keyserver.ExternalOperation{Operation: keyserver.OpEndSessions, Object: principal.Hex(), Own: isOwn(by, principal)}
	err = m.Authorizer.Guard(ctx, by, g, func() error {
		return m.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			p, err := tx.Principal(ctx, principal)
			if err != nil {
				return missing(err, "no principal has the id %s", principal)
			}
			ended, err = tx.DeleteSessionsOf(ctx, p.Ref())
			return err
		})
	})
	return ended, err
}

// isOwn reports whether an object of the principal is the caller's own object. A delegated or scoped session has no own
// objects.
func isOwn(by keyserver.Caller, principal keyserver.ID) bool {
	return by.Actor.ID.IsZero() && by.Scope == nil && !principal.IsZero() && principal == by.Principal.ID
}

func missing(err error, format string, id keyserver.ID) error {
	if errors.Is(err, sqlstore.ErrNotFound) {
		return fault.New(fault.NotFound, format, id).Audited(fault.ReasonObjectNotFound)
	}
	return err
}
