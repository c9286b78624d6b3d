package session

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sessionrows"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// endedError reports that a session has ended because a principal was disabled.
type endedError struct{ caller keyserver.Caller }

func (endedError) Error() string {
	return "the session has ended because its principal or its delegate was disabled"
}

func callerOf(record sessionrows.SessionRecord, p keyserver.Principal) keyserver.Caller {
	return keyserver.Caller{
		Principal: record.Principal, Name: p.Name, Type: p.Type, Session: record.ID, Kind: record.Kind,
		Certificate: record.Certificate, Actor: record.Actor, Scope: record.Scope,
		ScopeOperations: record.ScopeOperations, MayGrant: record.MayGrant,
		Bound: record.BoundKey != "" || record.Kind == keyserver.CertificateSession,
	}
}

// whyEnded converts an endedError to the error of the request. While the principal is disabled, the error states this. If
// the principal was enabled again, the result is SESSION_NOT_FOUND. Such refusals within a minute share one audit row.
func (m *Manager) whyEnded(ctx context.Context, err error, from From) error {
	var ended endedError
	if !errors.As(err, &ended) {
		return err
	}
	by := ended.caller
	var refusal *fault.Error
	if m.Authorizer != nil {
		standing := m.Authorizer.CheckCaller(ctx, by)
		if refusal = fault.As(standing); standing != nil && refusal == nil {
			return standing
		}
	}
	if refusal == nil || refusal.Code != fault.PrincipalOff && refusal.Code != fault.DelegatorRefused {
		return errNoSession
	}
	if err := m.record(ctx, keyserver.AuditEntry{
		Operation: keyserver.AuditSession, Outcome: keyserver.Refused, Reason: string(refusal.Reason), Principal: by.Principal,
		Object: by.Name, Kind: by.Kind, RequestID: from.RequestID, Actor: by.Actor,
		Address: from.Address, Session: by.Session, For: from.For,
	}); err != nil {
		return err
	}
	return refusal
}

// mayOpen refuses a new session if its principal or actor was disabled during the login. Existing sessions have already
// been ended.
func mayOpen(ctx context.Context, tx *sqlstore.Tx, record sessionrows.SessionRecord) error {
	for _, id := range []keyserver.ID{record.Principal.ID, record.Actor.ID} {
		if id.IsZero() {
			continue
		}
		p, err := tx.Principal(ctx, id)
		if errors.Is(err, sqlstore.ErrNotFound) || err == nil && p.Flags.Disabled() {
			return authenticationFailed(fault.ReasonPrincipalDisabled)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
