package session

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// errNoCertificate is more specific than other errors of failed logins. It reveals no secret, and the usual cause is a
// client or a proxy that sends no certificate.
var errNoCertificate = fault.New(fault.InvalidCredentials,
	"the connection has no client certificate; connect directly to this service with the enrolled certificate and its key").
	Audited(fault.ReasonNoCertificate)

// byCertificate identifies the transport principal for which the client certificate of the connection is enrolled. The
// TLS handshake has proved that the client has the private key. The validity of the certificate is checked again,
// because the connection may be old. Only a failed revocation check has its own error code.
func (m *Manager) byCertificate(ctx context.Context, l Login) (identity, error) {
	if len(l.Certificates) == 0 {
		return identity{}, errNoCertificate
	}
	leaf := l.Certificates[0]
	// If no principal is found, the audit row contains the subject of the certificate.
	who := identity{principal: keyserver.Principal{Name: pki.SlashName(leaf.Subject)}}
	digest := keyserver.DigestOf(leaf.Raw)
	stored, err := m.Store.Certificate(ctx, digest)
	switch {
	case errors.Is(err, sqlstore.ErrNotFound), err == nil && stored.Principal.IsZero():
		return who, authenticationFailed(fault.ReasonNotEnrolled)
	case err != nil:
		return identity{}, err
	}
	p, err := m.Store.Principal(ctx, stored.Principal)
	if err != nil {
		return identity{}, err
	}
	who = identity{principal: p, certificate: stored.ID, boundCertificate: digest[:]}
	err = m.Authorizer.CheckCaller(ctx, keyserver.Caller{
		Principal: p.Ref(), Name: p.Name, Type: p.Type, Kind: keyserver.CertificateSession, Certificate: stored.ID, RequestID: l.RequestID,
	})
	if code := fault.CodeOf(err); code == fault.SessionNotFound || code == fault.SessionExpired || code == fault.PrincipalOff {
		return who, authenticationFailed(fault.ReasonOf(err))
	}
	return who, err
}
