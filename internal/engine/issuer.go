package engine

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

// errNoIssuer keeps "no trusted CA issued it" out of the cache: that changes
// with time where a CA is trusted before its own life begins.
var errNoIssuer = errors.New("no trusted CA issued the certificate")

// issuerTrusted refuses a certificate whose CA is no longer trusted. Removing
// a CA takes nothing of its certificates away, and trusting it again restores
// them; in between they prove nothing, in no session.
func (e *Engine) issuerTrusted(ctx context.Context, c keyserver.Certificate) error {
	until, err := e.anchors.Get(ctx, c.ID, func() (time.Time, error) { return e.trustedUntil(ctx, c) })
	switch {
	case errors.Is(err, errNoIssuer), err == nil && e.Clock().After(until):
		return fault.New(fault.SessionNotFound, "the CA that issued the session's certificate is no longer trusted; log in with a certificate of a trusted one").
			Audited(fault.ReasonIssuerUntrusted).Because(err)
	default:
		return err
	}
}

// vouched reports whether a certificate is one that a login would be let in with: it
// is within its dates, its CA is trusted now, and no evidence refuses it. An error
// is no verdict.
func (e *Engine) vouched(ctx context.Context, c keyserver.Certificate) (bool, error) {
	if !c.ValidAt(e.Clock()) {
		return false, nil
	}
	err := e.issuerTrusted(ctx, c)
	if err == nil {
		err = e.notRevoked(ctx, c)
	}
	if f := fault.As(err); f != nil && f.Reason != "" {
		return false, nil
	}
	return err == nil, err
}

// trustedUntil is the end of the CA that vouches for the certificate now.
func (e *Engine) trustedUntil(ctx context.Context, c keyserver.Certificate) (time.Time, error) {
	leaf, err := x509.ParseCertificate(c.DER)
	if err != nil {
		return time.Time{}, errNoIssuer
	}
	cas, err := ca.Issuers(ctx, e.Store)
	if err != nil {
		return time.Time{}, err
	}
	issuer, err := pki.IssuerOf(leaf, cas, e.Clock())
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %w", errNoIssuer, err)
	}
	return issuer.NotAfter, nil
}
