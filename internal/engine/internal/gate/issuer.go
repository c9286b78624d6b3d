package gate

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ca"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// errNoIssuer is an error, so that the cache does not store this result. The result changes with time, because a CA may
// be trusted before it becomes valid.
var errNoIssuer = errors.New("no trusted CA issued the certificate")

// issuerTrusted fails if the CA of a certificate is not trusted now. If a CA is removed, its certificates are not
// deleted, but no session can use them. They can be used again when the CA is trusted again.
func (g *Gate) issuerTrusted(ctx context.Context, c keyserver.Certificate) error {
	until, err := g.anchors.Get(ctx, c.ID, func() (time.Time, error) { return g.trustedUntil(ctx, c) })
	switch {
	case errors.Is(err, errNoIssuer), err == nil && g.Clock().After(until):
		return fault.New(fault.SessionNotFound, "the CA that issued the session's certificate is no longer trusted; log in with a certificate of a trusted one").
			Audited(fault.ReasonIssuerUntrusted).Because(err)
	default:
		return err
	}
}

// acceptedForLogin reports whether a login would accept a certificate: the certificate is valid at this time, its CA is trusted,
// and no evidence refuses it. It returns an error if the store fails.
func (g *Gate) acceptedForLogin(ctx context.Context, c keyserver.Certificate) (bool, error) {
	if !c.ValidAt(g.Clock()) {
		return false, nil
	}
	err := g.issuerTrusted(ctx, c)
	if err == nil {
		err = g.notRevoked(ctx, c)
	}
	if f := fault.As(err); f != nil && f.Reason != "" {
		return false, nil
	}
	return err == nil, err
}

// trustedUntil returns the end of the validity of the trusted CA that issued the certificate.
func (g *Gate) trustedUntil(ctx context.Context, c keyserver.Certificate) (time.Time, error) {
	leaf, err := x509.ParseCertificate(c.DER)
	if err != nil {
		return time.Time{}, errNoIssuer
	}
	cas, err := ca.Issuers(ctx, g.Store)
	if err != nil {
		return time.Time{}, err
	}
	issuer, err := pki.IssuerOf(leaf, cas, g.Clock())
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %w", errNoIssuer, err)
	}
	return issuer.NotAfter, nil
}

// BestOf returns the newest certificate in force, and true. If there is none, it returns the newest certificate that is
// not replaced, and false. If all certificates are replaced, it returns a zero certificate.
func (g *Gate) BestOf(ctx context.Context, list []keyserver.Certificate) (best keyserver.Certificate, good bool, err error) {
	for _, c := range list {
		if !c.Current() {
			continue
		}
		vouched, err := g.acceptedForLogin(ctx, c)
		if err != nil {
			return keyserver.Certificate{}, false, err
		}
		if best.ID.IsZero() || vouched && !good || vouched == good && c.NotBefore.After(best.NotBefore) {
			best, good = c, vouched
		}
	}
	return best, good, nil
}
