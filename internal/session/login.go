package session

import (
	"context"
	"errors"
	"unicode/utf8"

	"github.com/keyserver-operator/keyserver-operator/internal/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/password"
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore"
)

// Bounds of what a login may send.
const (
	maxAuditedName = 64   // characters of a failed login's name that are recorded
	maxPassword    = 1024 // bytes; hashing more would be work on demand
)

// errBadCredentials is the one answer to every failed login.
var errBadCredentials = fault.New(fault.InvalidCredentials, "the login failed; check method, name and password")

// Login opens a session. Every failure answers INVALID_CREDENTIALS after the
// same work; LOGIN_THROTTLED and SESSION_LIMIT are refused before any work.
func (m *Manager) Login(ctx context.Context, l Login) (Opened, error) {
	if l.Method != MethodPassword {
		return Opened{}, fault.New(fault.BadRequest, "method must be %q", MethodPassword)
	}
	if wait := m.throttle.wait(l.Name, l.RemoteAddr); wait > 0 {
		f := fault.New(fault.LoginThrottled, "too many failed logins for this name or address; wait as Retry-After says")
		f.RetryAfter, f.Retryable = wait, true
		return Opened{}, m.refuse(ctx, l, keyserver.PrincipalRef{}, fault.ReasonThrottled, f)
	}
	var err error
	if l.proof, err = m.loginProof(l.Proof); err != nil {
		return Opened{}, err
	}
	p, reason, err := m.checkPassword(ctx, l)
	if err != nil {
		return Opened{}, err
	}
	if reason != "" {
		m.throttle.failed(l.Name, l.RemoteAddr)
		return Opened{}, m.refuse(ctx, l, p.Ref(), reason, errBadCredentials)
	}
	return m.open(ctx, l, p, keyserver.PasswordSession)
}

// checkPassword returns the principal, or the reason why there is none to log
// in. Unknown names and disabled principals take the work of a right password.
func (m *Manager) checkPassword(ctx context.Context, l Login) (keyserver.Principal, fault.Reason, error) {
	p, err := m.Store.PrincipalByName(ctx, keyserver.PasswordPrincipal, l.Name)
	hash := ""
	if err == nil {
		hash, err = m.Store.PasswordHash(ctx, p.ID)
	}
	if err != nil && !errors.Is(err, sqlstore.ErrNotFound) {
		return keyserver.Principal{}, "", err
	}
	given := l.Password
	if len(given) > maxPassword {
		given, hash = "", ""
	}
	ok, err := password.Check(ctx, given, hash)
	switch {
	case err != nil:
		return keyserver.Principal{}, "", err
	case !ok:
		return keyserver.Principal{}, fault.ReasonBadCredentials, nil
	case p.Flags.Disabled():
		return p, fault.ReasonPrincipalDisabled, nil
	}
	return p, "", nil
}

// open audits the login and stores the session.
func (m *Manager) open(ctx context.Context, l Login, p keyserver.Principal, kind keyserver.SessionKind) (Opened, error) {
	now := m.Clock()
	live, err := m.Store.SessionCount(ctx, now, m.Idle)
	if err != nil {
		return Opened{}, err
	}
	if live >= m.MaxSessions {
		f := fault.Temporary(fault.SessionLimit, fault.ScopeProcess, m.Idle/touchPeriods,
			"the key server holds %d sessions, which is the most it may hold", m.MaxSessions)
		return Opened{}, m.refuse(ctx, l, p.Ref(), fault.ReasonLimit, f)
	}
	id, err := keyserver.NewID(m.Random)
	if err != nil {
		return Opened{}, err
	}
	token, hash, err := m.newToken()
	if err != nil {
		return Opened{}, err
	}
	record := sqlstore.SessionRecord{
		ID: id, Hash: hash, Principal: p.Ref(), Kind: kind,
		CreatedAt: now, ExpiresAt: now.Add(m.Lifetime), LastUsedAt: now,
	}
	if l.proof != nil {
		record.BoundKey = l.proof.Key
		if err := m.proofs.use(ctx, *l.proof, now); err != nil {
			return Opened{}, m.refuse(ctx, l, p.Ref(), fault.ReasonOf(err), err)
		}
	}
	if err := m.Audit.Write(ctx, loginRow(l, p.Ref(), keyserver.Allowed, "")); err != nil {
		return Opened{}, err
	}
	if err := m.Store.Update(ctx, func(tx *sqlstore.Tx) error { return tx.InsertSession(ctx, record) }); err != nil {
		return Opened{}, err
	}
	m.throttle.succeeded(l.Name, l.RemoteAddr)
	h, err := m.load(ctx, hash)
	if err != nil {
		return Opened{}, err
	}
	info, err := m.describe(ctx, h)
	return Opened{Token: token, Info: info}, err
}

// refuse makes the row of a refused login durable before the refusal is answered.
func (m *Manager) refuse(ctx context.Context, l Login, p keyserver.PrincipalRef, reason fault.Reason, answer error) error {
	if err := m.Audit.Write(ctx, loginRow(l, p, keyserver.Refused, reason)); err != nil {
		return err
	}
	return answer
}

func loginRow(l Login, p keyserver.PrincipalRef, outcome keyserver.Outcome, reason fault.Reason) keyserver.AuditEntry {
	return keyserver.AuditEntry{
		Operation: keyserver.AuditLogin, Outcome: outcome, Reason: string(reason),
		Principal: p, Object: cut(l.Name), Kind: keyserver.PasswordSession, RequestID: l.RequestID,
	}
}

// cut shortens a name as sent to what the audit trail keeps.
func cut(name string) string {
	if !utf8.ValidString(name) {
		return "(not UTF-8)"
	}
	n := 0
	for i := range name {
		if n == maxAuditedName {
			return name[:i]
		}
		n++
	}
	return name
}
