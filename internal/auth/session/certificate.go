package session

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// errNoCertificate says more than other failed logins: whoever calls knows
// what he sent, and the usual cause is a client or a proxy that sent nothing.
var errNoCertificate = fault.New(fault.InvalidCredentials,
	"the connection brought no client certificate; connect straight to this service with the enrolled certificate and its key").
	Audited(fault.ReasonNoCertificate)

// byCertificate recognises the transport principal for which the client
// certificate of the connection is enrolled. That the client holds its key was
// shown in the handshake; whether the certificate is in force is judged now,
// because a connection may be old. Only what revocation evidence says is
// answered with a code of its own.
func (m *Manager) byCertificate(ctx context.Context, l Login) (identity, error) {
	if len(l.Certificates) == 0 {
		return identity{}, errNoCertificate
	}
	leaf := l.Certificates[0]
	// Until a principal is known, the subject names who tried.
	who := identity{principal: keyserver.Principal{Name: pki.SlashName(leaf.Subject)}}
	digest := keyserver.DigestOf(leaf.Raw)
	stored, err := m.Store.Certificate(ctx, digest)
	switch {
	case errors.Is(err, sqlstore.ErrNotFound), err == nil && stored.Principal.IsZero():
		return who, notRecognised(fault.ReasonNotEnrolled)
	case err != nil:
		return identity{}, err
	}
	p, err := m.Store.Principal(ctx, stored.Principal)
	if err != nil {
		return identity{}, err
	}
	who = identity{principal: p, certificate: stored.ID, shown: digest[:]}
	err = m.Authorizer.Standing(ctx, keyserver.Caller{
		Principal: p.Ref(), Name: p.Name, Type: p.Type, Kind: keyserver.CertificateSession, Certificate: stored.ID, RequestID: l.RequestID,
	})
	if code := fault.CodeOf(err); code == fault.SessionNotFound || code == fault.SessionExpired || code == fault.PrincipalOff {
		return who, notRecognised(fault.ReasonOf(err))
	}
	return who, err
}
