package session

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/oidc"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// byKubernetes identifies the xauth principal with the issuer and subject of a token. The session expires with the
// token, so that a service account that gets no new tokens loses its session.
func (m *Manager) byKubernetes(ctx context.Context, l Login) (identity, error) {
	if m.Tokens == nil {
		return identity{}, notConfigured(l.Method)
	}
	token, err := m.Tokens.Verify(ctx, l.Token)
	if err != nil {
		return identity{}, m.unrecognised(ctx, l, err)
	}
	p, found, err := known(m.Store.PrincipalByIdentity(ctx, token.Issuer, token.Subject))
	switch {
	case err != nil:
		return identity{}, err
	case !found:
		return identity{}, m.unrecognised(ctx, l, oidc.Refused("no xauth principal has its issuer and subject"))
	case len(p.Identity.Audiences) > 0 && !oidc.NamesOneOf(token.Audiences, p.Identity.Audiences):
		return identity{principal: p}, m.unrecognised(ctx, l, oidc.Refused("aud contains none of the principal's audiences"))
	case p.Flags.Disabled():
		return identity{principal: p}, authenticationFailed(fault.ReasonPrincipalDisabled)
	}
	end := token.ExpiresAt.Add(oidc.Leeway) // the verifier accepts the token until then
	if longest := m.Clock().Add(m.Lifetime); end.After(longest) {
		end = longest
	}
	return identity{principal: p, expiresAt: end}, nil
}

// nameOf returns the name that is used to count and audit failed logins. For a token, it is the claimed, unverified
// subject. Without it, one Pod with a wrong token would throttle all clients at its address.
func nameOf(l Login) string {
	if l.Method != keyserver.KubernetesSession {
		return l.Name
	}
	claimed, err := oidc.Read(l.Token)
	if err != nil {
		return ""
	}
	return claimed.Subject
}
