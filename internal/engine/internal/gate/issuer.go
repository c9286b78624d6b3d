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

// errNoIssuer keeps "no trusted CA issued it" out of the cache: that changes
// with time where a CA is trusted before its own life begins.
var errNoIssuer = errors.New("no trusted CA issued the certificate")

// issuerTrusted refuses a certificate whose CA is no longer trusted. Removing
// a CA takes nothing of its certificates away, and trusting it again restores
// them; in between they prove nothing, in no session.
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

// vouched reports whether a certificate is one that a login would be let in with: it
// is within its dates, its CA is trusted now, and no evidence refuses it. An error
// is no verdict.
func (g *Gate) vouched(ctx context.Context, c keyserver.Certificate) (bool, error) {
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

// trustedUntil is the end of the CA that vouches for the certificate now.
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

// BestOf is of some certificates the one that was made last among those in force; where
// none is, among those that are not replaced. Zero: there is none of either.
func (g *Gate) BestOf(ctx context.Context, list []keyserver.Certificate) (best keyserver.Certificate, good bool, err error) {
	for _, c := range list {
		if !c.Current() {
			continue
		}
		vouched, err := g.vouched(ctx, c)
		if err != nil {
			return keyserver.Certificate{}, false, err
		}
		if best.ID.IsZero() || vouched && !good || vouched == good && c.NotBefore.After(best.NotBefore) {
			best, good = c, vouched
		}
	}
	return best, good, nil
}
