package session

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sessionrows"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// maxAuditedName is the maximum number of characters of a name in the audit row of a login.
const maxAuditedName = 64

// identity is the result of a login method: the principal and the properties of the new session.
type identity struct {
	principal        keyserver.Principal
	certificate      keyserver.ID
	actor            keyserver.PrincipalRef
	scope            []keyserver.HiddenLink
	operations       []keyserver.ID   // of a scoped credential
	mayGrant         keyserver.Rights // of a scoped credential that changes ACLs
	boundKey         string           // thumbprint of the key, if it is not the key of a proof
	password         string           // stored hash of the checked password, if any
	renewed          string           // hash of the same password at the configured cost; empty if the stored hash has this cost
	boundCertificate []byte           // SHA-256 of the client certificate that the session is bound to
	expiresAt        time.Time        // zero: the manager's Lifetime applies
	parent           keyserver.ID
}

// method identifies the principal of a login. If it refuses the login, the error is a fault with an audit reason, and
// the returned identity names the principal if it is known.
type method func(m *Manager, ctx context.Context, l Login) (identity, error)

// methods are the login methods. Each has its own file.
var methods = map[keyserver.SessionKind]method{
	keyserver.PasswordSession: (*Manager).byPassword,

	keyserver.KubernetesSession: (*Manager).byKubernetes,
	keyserver.LDAPSession:       (*Manager).byLDAP,

	keyserver.CertificateSession: (*Manager).byCertificate,

	keyserver.DelegatedSession: (*Manager).byDelegator,
	keyserver.ScopedSession:    (*Manager).byScope,
}

// Login opens a session. Every failed authentication returns INVALID_CREDENTIALS after the same amount of work. Login
// returns LOGIN_THROTTLED and OVERLOADED before that work.
func (m *Manager) Login(ctx context.Context, l Login) (Opened, error) {
	recognise, ok := methods[l.Method]
	if !ok {
		return Opened{}, fault.New(fault.BadRequest, "method: must be one of %s", Methods())
	}
	opened, err := m.login(ctx, l, recognise)
	m.meter.login(l.Method, err)
	return opened, err
}

func (m *Manager) login(ctx context.Context, l Login, recognise method) (Opened, error) {
	l.Name = nameOf(l)
	if l.By != nil {
		if err := m.prepareDerived(ctx, &l); err != nil {
			return Opened{}, err
		}
		l.attempt = &attempt{}
		return m.try(ctx, l, recognise)
	}
	var err error
	if l.attempt, err = m.throttle.look(ctx, l); err == nil && l.Method != keyserver.PasswordSession {
		err = m.throttle.take(ctx, l.attempt) // a password login takes its tokens in inPlace
	}
	if err != nil {
		return Opened{}, m.refuse(ctx, l, identity{}, err)
	}
	opened, err := m.try(ctx, l, recognise)
	if fault.CodeOf(err) != fault.InvalidCredentials {
		m.throttle.giveBack(ctx, l.attempt) // the login was not a wrong guess
	}
	return opened, err
}

func (m *Manager) try(ctx context.Context, l Login, recognise method) (Opened, error) {
	var err error
	if l.proof, err = m.loginProof(l.Proof); err != nil {
		return Opened{}, err
	}
	if m.RequireProof.unmet(l) { // before the credentials are checked, so that the refusal reveals nothing about them
		return Opened{}, m.refuse(ctx, l, identity{}, errUnbound)
	}
	who, err := recognise(m, ctx, l)
	if err != nil {
		return Opened{}, m.refuse(ctx, l, who, err)
	}
	opened, err := m.open(ctx, l, who)
	if err == nil && who.renewed != "" {
		m.storeRenewed(ctx, who)
	}
	return opened, err
}

// Methods returns the names of all login methods, for messages.
func Methods() string {
	names := make([]string, 0, len(methods))
	for name := range methods {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// authenticationFailed returns the error of every failed authentication. Only the audit log contains the reason.
func authenticationFailed(reason fault.Reason) error {
	return fault.New(fault.InvalidCredentials, "the login failed; check the method and the credentials").Audited(reason)
}

func (m *Manager) open(ctx context.Context, l Login, who identity) (Opened, error) {
	now := m.Clock()
	id, err := values.NewID(m.Random)
	if err != nil {
		return Opened{}, err
	}
	token, hash, err := m.newToken()
	if err != nil {
		return Opened{}, err
	}
	record := sessionrows.SessionRecord{
		ID: id, Hash: hash, Principal: who.principal.Ref(), Kind: l.Method,
		CreatedAt: now, ExpiresAt: now.Add(m.Lifetime), LastUsedAt: now,
		Certificate: who.certificate, Actor: who.actor, Scope: who.scope, BoundKey: who.boundKey,
		Parent: who.parent, ScopeOperations: who.operations, MayGrant: who.mayGrant, Address: l.Address, BoundCertificate: who.boundCertificate,
	}
	if !who.expiresAt.IsZero() {
		record.ExpiresAt = who.expiresAt
	}
	left, err := m.room(ctx, m.Store, record)
	if err != nil {
		return Opened{}, m.refuse(ctx, l, who, err)
	}
	if l.proof != nil {
		record.BoundKey = l.proof.Key
		err := m.proofs.use(ctx, acting(record.Principal, record.Actor), *l.proof, now)
		if m.meter.proof(err); err != nil {
			return Opened{}, m.refuse(ctx, l, who, err)
		}
	}
	if err := m.Audit.Write(ctx, loginRow(l, who, keyserver.Allowed, "")); err != nil {
		return Opened{}, err
	}
	err = m.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		if l.attempt.refresh {
			if err := tx.PutKnownOrigin(ctx, l.attempt.origin, now.Add(knownFor)); err != nil {
				return err
			}
		}
		if err := stillPassword(ctx, tx, who); err != nil {
			return err
		}
		if err := m.takeRoom(ctx, tx, record, left); err != nil {
			return err
		}
		return insert(ctx, tx, record)
	})
	if err != nil {
		return Opened{}, m.refuse(ctx, l, who, err)
	}
	h, err := m.load(ctx, hash)
	if err != nil {
		return Opened{}, err
	}
	info, err := m.describe(ctx, h)
	return Opened{Token: token, Info: info}, err
}

// refuse writes a durable audit row for a refused login and returns the refusal. It writes no row if an equal row was
// written less than a minute ago. An error without a reason is not a decision about the login, so it gets no row
// either.
func (m *Manager) refuse(ctx context.Context, l Login, who identity, answer error) error {
	f := fault.As(answer)
	if f == nil || f.Reason == "" {
		return answer
	}
	if err := m.record(ctx, loginRow(l, who, keyserver.Refused, f.Reason)); err != nil {
		return err
	}
	return answer
}

func loginRow(l Login, who identity, outcome keyserver.Outcome, reason fault.Reason) keyserver.AuditEntry {
	name := l.Name
	switch {
	case l.attempt.empty == "address":
		name = "" // refusals of many names from one address become one row
	case name == "":
		name = who.principal.Name
	}
	return keyserver.AuditEntry{
		Operation: keyserver.AuditLogin, Outcome: outcome, Reason: string(reason),
		Principal: who.principal.Ref(), Actor: who.actor, Object: cut(name), Kind: l.Method, RequestID: l.RequestID,
		Address: l.Address, For: l.For,
	}
}

// cut truncates a name to the form that the audit log stores.
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
