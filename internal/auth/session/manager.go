package session

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sessionrows"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Auditor writes a row of the audit log and returns after it is durable.
type Auditor interface {
	Write(ctx context.Context, entry keyserver.AuditEntry) error
}

// Config configures a manager. A zero limit means the default.
type Config struct {
	Store      *sqlstore.Store
	Audit      Auditor
	Authorizer Authorizer
	System     keyserver.SystemID
	Clock      func() time.Time
	Random     io.Reader
	Logger     *slog.Logger
	Registerer prometheus.Registerer // registers the metrics; nil: no metrics

	Providers

	Idle     time.Duration // maximum time without use; default 15 min
	Lifetime time.Duration // maximum age of a session; default 8 h
	// ScopedLifetime is the lifetime of a scoped credential if its request has none; default 10 min, at most Lifetime.
	ScopedLifetime time.Duration
	// RequireProof selects the logins that must bind their session; empty: no login.
	RequireProof Demand
	// PasswordCost is the cost of new password hashes. If the stored hash has another cost, a login stores a new hash.
	PasswordCost password.Cost
	// Hashes limits the concurrent password hashes of the process; default: a gate with MaxLogins places.
	Hashes *password.Gate
	Limits
}

// Defaults of Config.
const (
	DefaultIdle     = 15 * time.Minute
	DefaultLifetime = 8 * time.Hour
)

const (
	maxHeld      = 65536 // maximum number of sessions in memory
	touchPeriods = 10    // the last use of a session is written at most this often per Idle
	keepExpired  = time.Hour
	maxOvertaken = 8
	// expiredPerFlush limits the deletions in one housekeeping transaction.
	expiredPerFlush = 1000
	tokenBytes      = 32
)

// Manager opens, finds and ends sessions. Close stops its housekeeping goroutine.
type Manager struct {
	Config
	throttle *throttle
	gate     *loginGate
	reads    *readGate
	tallies  *tallies
	proofs   *proofCache
	meter    *meter

	// announced counts the notifications about ended sessions. If one arrives while a session is read, the session may
	// have ended, and is not kept in memory.
	announced atomic.Uint64

	mu     sync.RWMutex
	byHash map[[32]byte]*held
	byID   map[keyserver.ID]*held

	stop context.CancelFunc
	done chan struct{}
}

// held is a session in the memory of this process.
type held struct {
	hash     [32]byte
	record   sessionrows.SessionRecord
	caller   keyserver.Caller
	lastUsed atomic.Int64 // Unix nanoseconds
	written  atomic.Int64 // last use in the store
	// aboveUsed is the earliest last use among the parent session and its own parents, as read from the store. It is zero
	// for a session without a parent.
	aboveUsed atomic.Int64
	inFlight  atomic.Int64
	release   func() // ends a request; shared by all requests, so that none allocates it
}

// NewManager returns a manager and starts its housekeeping goroutine.
func NewManager(c Config) *Manager {
	setDefault(&c.Idle, DefaultIdle)
	setDefault(&c.Lifetime, DefaultLifetime)
	setDefault(&c.ScopedLifetime, DefaultScopedLifetime)
	c.ScopedLifetime = min(c.ScopedLifetime, c.Lifetime)
	c.setDefaults()
	if c.Hashes == nil {
		c.Hashes = password.NewGate(c.MaxLogins)
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &Manager{
		Config: c, throttle: newThrottle(c.Clock, c.Store), gate: newLoginGate(c.Hashes, c.MaxLogins), reads: newReadGate(quota.Share(c.Store.Readers())), tallies: &tallies{all: map[refusalKind]*tally{}}, proofs: newProofCache(c.Store, c.MaxProofs, c.Clock()),
		byHash: map[[32]byte]*held{}, byID: map[keyserver.ID]*held{},
		meter: newMeter(), stop: stop, done: make(chan struct{}),
	}
	m.gate.observe(c.Registerer)
	m.meter.observe(c.Registerer, m.proofs)
	c.Store.OnChange(m.changed)
	go m.housekeep(ctx)
	return m
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Close stops the housekeeping and writes the pending data: last uses, audit rows of counted refusals, and used proofs.
func (m *Manager) Close() {
	m.stop()
	<-m.done
	ctx, cancel := context.WithTimeout(context.Background(), concludeDeadline)
	defer cancel()
	m.writeTallies(ctx, m.tallies.rest())
	if err := m.proofs.conclude(ctx); err != nil {
		m.Logger.Warn("cannot save the used DPoP proofs; after the next start, proofs from before that start are refused", "error", err)
	}
}

// changed drops sessions from memory that another request or replica has ended. An empty list means that changes may
// have been missed, so it drops all sessions. A request in progress still decrements the counter of its dropped
// session.
func (m *Manager) changed(changes []keyserver.Change) {
	if len(changes) == 0 {
		m.announced.Add(1)
		m.mu.Lock()
		clear(m.byHash)
		clear(m.byID)
		m.mu.Unlock()
	}
	for _, c := range changes {
		if c.Kind != keyserver.ChangeSession {
			continue
		}
		m.announced.Add(1)
		m.mu.Lock()
		if h, ok := m.byID[c.ID]; ok {
			m.evict(h)
		}
		m.mu.Unlock()
	}
}

// Authenticate finds the session of a token, checks the key and the client certificate that the session is bound to,
// and returns the caller. The caller must call the returned function at the end of the request. Authenticate returns
// SESSION_NOT_FOUND, SESSION_EXPIRED, CERTIFICATE_MISMATCH, an error code of the proof, or REQUEST_LIMIT. A refused
// request does not extend its session. If the session is not in memory, the request first takes a place from
// from.Stranger. An error of from.Stranger refuses the request.
func (m *Manager) Authenticate(ctx context.Context, token string, proof Proof, from From) (keyserver.Caller, func(), error) {
	hash, ok := hashToken(token)
	if !ok {
		return keyserver.Caller{}, nil, errNoSession
	}
	if err := m.Store.Current(ctx); err != nil {
		return keyserver.Caller{}, nil, err
	}
	h, now := m.inMemory(hash), m.Clock()
	if h == nil || m.expired(h, now) {
		// Another replica may know a later use of the session or of its parent.
		var err error
		if h, err = m.recall(ctx, hash, from); err != nil {
			return keyserver.Caller{}, nil, err
		}
		now = m.Clock()
	}
	if err := m.checkBinding(ctx, h, token, proof); err != nil {
		return keyserver.Caller{}, nil, m.refuseProof(ctx, h, from, err)
	}
	if err := m.takePlace(h); err != nil {
		return keyserver.Caller{}, nil, err
	}
	h.lastUsed.Store(now.UnixNano())
	m.Hashes.Worked()
	caller := h.caller
	caller.RequestID, caller.Address, caller.Purpose = from.RequestID, from.Address, from.For
	return caller, h.release, nil
}

var errNoSession = fault.New(fault.SessionNotFound, "the session id is unknown or its session has ended; log in with POST /api/sessions")

// Current returns the description of the caller's session.
func (m *Manager) Current(ctx context.Context, by keyserver.Caller) (Info, error) {
	m.mu.RLock()
	h, ok := m.byID[by.Session]
	m.mu.RUnlock()
	if !ok {
		return Info{}, errNoSession
	}
	return m.describe(ctx, h)
}

// End ends the caller's session on every replica, and all sessions that were derived from it.
func (m *Manager) End(ctx context.Context, by keyserver.Caller) error {
	err := m.Audit.Write(ctx, keyserver.AuditEntry{
		Operation: keyserver.AuditLogout, Outcome: keyserver.Allowed, Principal: by.Principal,
		Object: by.Name, Kind: by.Kind, RequestID: by.RequestID, Actor: by.Actor,
		Address: by.Address, Session: by.Session, For: by.Purpose,
	})
	if err != nil {
		return err
	}
	err = m.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		_, err := tx.DeleteSession(ctx, by.Session)
		return err
	})
	if errors.Is(err, sqlstore.ErrNotFound) {
		return errNoSession
	}
	return err
}

func (m *Manager) expired(h *held, now time.Time) bool {
	return !now.Before(h.record.ExpiresAt) || !h.fixed() && m.idle(&h.lastUsed, now) || m.aboveIdle(h, now)
}

// aboveIdle reports whether a session from which this session was derived has expired because it was not used.
func (m *Manager) aboveIdle(h *held, now time.Time) bool {
	return !h.record.Parent.IsZero() && m.idle(&h.aboveUsed, now)
}

func (m *Manager) idle(used *atomic.Int64, now time.Time) bool {
	return now.Sub(time.Unix(0, used.Load())) >= m.Idle
}

// fixed reports whether the session does not expire when it is idle.
func (h *held) fixed() bool { return h.record.Kind == keyserver.ScopedSession }

func (m *Manager) errExpired(h *held, now time.Time) error {
	switch {
	case now.Before(h.record.ExpiresAt) && m.aboveIdle(h, now):
		return fault.New(fault.SessionExpired, "the session from which this one was derived has expired without use; log in again")
	case h.fixed():
		return fault.New(fault.ScopedExpired, "the scoped credential has expired; request a new one")
	default:
		return fault.New(fault.SessionExpired, "the session has expired; log in again")
	}
}

func (m *Manager) inMemory(hash [32]byte) *held {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.byHash[hash]
}

// recall reads a session that is not in memory, or that is expired there. Before that, it waits in the queue of reads,
// because most such tokens may be invented.
func (m *Manager) recall(ctx context.Context, hash [32]byte, from From) (h *held, err error) {
	if from.Stranger != nil {
		if err := from.Stranger.TakePlace(); err != nil {
			return nil, err
		}
	}
	leave, err := m.reads.enter(ctx, from.Address)
	if err != nil {
		return nil, err
	}
	defer func() { leave(err == nil) }()
	if h = m.inMemory(hash); h != nil && !m.expired(h, m.Clock()) {
		return h, nil // another request has read the session while this one waited
	}
	if h, err = m.load(ctx, hash); err != nil {
		return nil, m.whyEnded(ctx, err, from)
	}
	if now := m.Clock(); m.expired(h, now) {
		return nil, m.errExpired(h, now)
	}
	return h, nil
}

// load reads a session and its principal from the store and keeps them in memory. If a notification about an ended
// session arrives during the read, it reads again.
func (m *Manager) load(ctx context.Context, hash [32]byte) (*held, error) {
	for range maxOvertaken {
		if h, kept, err := m.loadOnce(ctx, hash); kept || err != nil {
			return h, err
		}
	}
	return nil, fault.Temporary(fault.Overloaded, fault.ScopeProcess, time.Second,
		"the session could not be read because too many sessions end at the moment; try again")
}

func (m *Manager) loadOnce(ctx context.Context, hash [32]byte) (*held, bool, error) {
	before := m.announced.Load()
	record, err := m.Store.Session(ctx, hash)
	if errors.Is(err, sqlstore.ErrNotFound) {
		return nil, false, errNoSession
	}
	if err != nil {
		return nil, false, err
	}
	p, err := m.Store.Principal(ctx, record.Principal.ID)
	if errors.Is(err, sqlstore.ErrNotFound) {
		return nil, false, errNoSession
	}
	if err != nil {
		return nil, false, err
	}
	if record.Ended {
		return nil, false, endedError{callerOf(record, p)}
	}
	above, err := m.usedAbove(ctx, record)
	if err != nil {
		return nil, false, err
	}
	h, kept := m.keep(record, p, above, before)
	return h, kept, nil
}

// usedAbove returns the earliest last use of the sessions from which record was derived, or the zero time if there are
// none.
func (m *Manager) usedAbove(ctx context.Context, record sessionrows.SessionRecord) (earliest time.Time, err error) {
	for id := record.Parent; !id.IsZero(); {
		parent, err := m.Store.SessionByID(ctx, id)
		if errors.Is(err, sqlstore.ErrNotFound) {
			return time.Time{}, errNoSession
		}
		if err != nil {
			return time.Time{}, err
		}
		if used := m.lastUse(parent); earliest.IsZero() || used.Before(earliest) {
			earliest = used
		}
		id = parent.Parent
	}
	return earliest, nil
}

// keep stores a session in memory, unless a notification arrived during the read. If the session is already in memory,
// keep only updates its last uses, so that there is one counter of requests in progress.
func (m *Manager) keep(record sessionrows.SessionRecord, p keyserver.Principal, above time.Time, before uint64) (*held, bool) {
	used := record.LastUsedAt.UnixNano()
	if record.Kind == keyserver.ScopedSession && record.Scope == nil {
		record.Scope = []keyserver.HiddenLink{} // nil would mean that the session is not limited to keys
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h, ok := m.byHash[record.Hash]
	if !ok {
		h = &held{hash: record.Hash, record: record, caller: callerOf(record, p)}
		h.release = func() { h.inFlight.Add(-1) }
		for _, other := range m.byHash {
			if len(m.byHash) < maxHeld {
				break
			}
			m.evict(other)
		}
		if m.announced.Load() != before {
			return nil, false
		}
		m.byHash[record.Hash], m.byID[record.ID] = h, h
	}
	if used > h.lastUsed.Load() {
		h.lastUsed.Store(used)
		h.written.Store(used)
	}
	if !record.Parent.IsZero() && above.UnixNano() > h.aboveUsed.Load() {
		h.aboveUsed.Store(above.UnixNano())
	}
	return h, true
}

// evict removes a session from memory. The caller holds mu.
func (m *Manager) evict(h *held) {
	delete(m.byHash, h.hash)
	delete(m.byID, h.record.ID)
}

func (m *Manager) describe(ctx context.Context, h *held) (Info, error) {
	p, err := m.Store.Principal(ctx, h.record.Principal.ID)
	if err != nil {
		return Info{}, err
	}
	info := Info{
		ID: h.record.ID, Kind: h.record.Kind, Principal: p, Actor: h.record.Actor, Objects: h.record.Scope, BoundKey: h.record.BoundKey, BoundCertificate: h.record.BoundCertificate,
		Expiry: m.expiry(h.record, time.Unix(0, h.lastUsed.Load())),
	}
	if h.record.Kind == keyserver.ScopedSession {
		info.Operations, info.MayGrant = h.caller.CredentialOperations(), h.record.MayGrant
	}
	for _, id := range p.Roles {
		role, err := m.Store.Role(ctx, id)
		if errors.Is(err, sqlstore.ErrNotFound) {
			continue
		}
		if err != nil {
			return Info{}, err
		}
		info.Roles = append(info.Roles, role)
	}
	return info, nil
}

func (m *Manager) newToken() (string, [32]byte, error) {
	var raw [tokenBytes]byte
	if _, err := io.ReadFull(m.Random, raw[:]); err != nil {
		return "", [32]byte{}, err
	}
	return base64.RawURLEncoding.EncodeToString(raw[:]), sha256.Sum256(raw[:]), nil
}

// hashToken returns the hash under which a token is stored. It returns false if the token is not the canonical encoding
// of 32 bytes.
func hashToken(token string) ([32]byte, bool) {
	var raw [tokenBytes]byte
	if len(token) != base64.RawURLEncoding.EncodedLen(tokenBytes) {
		return raw, false
	}
	n, err := base64.RawURLEncoding.Strict().Decode(raw[:], []byte(token))
	if err != nil || n != tokenBytes {
		return raw, false
	}
	return sha256.Sum256(raw[:]), true
}
