package session

import (
	"context"
	"errors"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/ldap"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/oidc"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Providers contains the identity providers of some login methods. A login method whose provider is nil is refused.
type Providers struct {
	Tokens    TokenVerifier // kubernetes
	Directory Directory     // ldap
}

// TokenVerifier verifies the tokens of one issuer. It returns oidc.Refused for an invalid token. All other errors mean
// that the token could not be checked.
type TokenVerifier interface {
	Verify(ctx context.Context, token string) (oidc.Token, error)
}

// Directory checks passwords. It returns ldap.Refused for a wrong password. All other errors mean that the password
// could not be checked. CheckDummy does as much work as Check, but without an account.
type Directory interface {
	Check(ctx context.Context, name, password string) error
	CheckDummy(ctx context.Context) error
}

// providerRetry is the retry time of a login if its provider is unavailable.
const providerRetry = 5 * time.Second

func notConfigured(method keyserver.SessionKind) error {
	return fault.New(fault.BadRequest, "method: %s is not configured on this key server; use another method", method)
}

// unrecognised converts the error of a provider to the error of the login. It logs the cause, because administrators
// need it, but unauthenticated clients must not learn it.
func (m *Manager) unrecognised(ctx context.Context, l Login, err error) error {
	var token oidc.Refused
	var bind ldap.Refused
	if errors.As(err, &token) || errors.As(err, &bind) {
		m.Logger.InfoContext(ctx, "login refused", "method", l.Method, "name", cut(l.Name), "requestId", l.RequestID, "why", err.Error())
		return authenticationFailed(fault.ReasonBadCredentials)
	}
	if ctx.Err() != nil {
		return err // the request was canceled or timed out
	}
	m.Logger.WarnContext(ctx, "the identity provider is not available", "method", l.Method, "requestId", l.RequestID, "error", err)
	return fault.Temporary(fault.ProviderUnavailable, fault.ScopeProcess, providerRetry,
		"the identity provider of the method %s is not available; try again", l.Method).Because(err).Audited(fault.ReasonProviderUnavailable)
}

// known returns false instead of the error ErrNotFound.
func known(p keyserver.Principal, err error) (keyserver.Principal, bool, error) {
	if errors.Is(err, sqlstore.ErrNotFound) {
		return keyserver.Principal{}, false, nil
	}
	return p, err == nil, err
}
