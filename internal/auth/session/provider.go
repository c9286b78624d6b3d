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

// Providers are the identity providers that some methods ask. A nil one is not
// configured, and its method is refused.
type Providers struct {
	Tokens    TokenVerifier // kubernetes
	Directory Directory     // ldap
}

// TokenVerifier verifies the tokens of one issuer: oidc.Refused says that one
// is no good, every other error that this could not be found out.
type TokenVerifier interface {
	Verify(ctx context.Context, token string) (oidc.Token, error)
}

// Directory checks passwords: ldap.Refused says that one is no good, every
// other error that this could not be found out. Decoy is as much work, for
// nobody.
type Directory interface {
	Check(ctx context.Context, name, password string) error
	Decoy(ctx context.Context) error
}

// providerRetry is when a login that no provider could look at is worth
// another try.
const providerRetry = 5 * time.Second

func notConfigured(method keyserver.SessionKind) error {
	return fault.New(fault.BadRequest, "method: %s is not configured on this key server", method)
}

// unrecognised turns what a provider says into the answer to the login. Why it
// said so is for the log: whoever mends a login needs more than the one answer
// that strangers get.
func (m *Manager) unrecognised(ctx context.Context, l Login, err error) error {
	var token oidc.Refused
	var bind ldap.Refused
	if errors.As(err, &token) || errors.As(err, &bind) {
		m.Logger.InfoContext(ctx, "a login was refused", "method", l.Method, "name", cut(l.Name), "requestId", l.RequestID, "why", err.Error())
		return notRecognised(fault.ReasonBadCredentials)
	}
	if ctx.Err() != nil {
		return err // whoever asked is gone, or out of time
	}
	m.Logger.WarnContext(ctx, "the identity provider cannot be asked", "method", l.Method, "requestId", l.RequestID, "error", err)
	return fault.Temporary(fault.ProviderUnavailable, fault.ScopeProcess, providerRetry,
		"the identity provider of the method %s cannot be asked now; try again", l.Method).Because(err).Audited(fault.ReasonProviderUnavailable)
}

// known reads a principal that may not exist.
func known(p keyserver.Principal, err error) (keyserver.Principal, bool, error) {
	if errors.Is(err, sqlstore.ErrNotFound) {
		return keyserver.Principal{}, false, nil
	}
	return p, err == nil, err
}
