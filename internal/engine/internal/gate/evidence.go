package gate

import (
	"context"
	"errors"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Evidence has the revocation policy, the CRL and the revoked serial numbers of one CA.
type Evidence struct {
	Policy  keyserver.RevocationPolicy
	CRL     *keyserver.CRLFacts // nil if none was imported
	Revoked keyserver.SerialSet
}

// Judge returns the error code with which a certificate of the CA is refused, or "" if it is accepted. It has no side
// effects. A revoked certificate is refused even if the CRL is stale. A missing or stale CRL is a reason to refuse only
// if the policy requires evidence.
func (v Evidence) Judge(serial []byte, now time.Time) fault.Code {
	switch v.Policy.Mode {
	case keyserver.RevocationOff:
		return ""
	case keyserver.RevocationWhenAvailable:
		if v.CRL != nil && v.Revoked.Has(serial) {
			return fault.CertificateRevoked
		}
		return ""
	case keyserver.RevocationRequired:
	}
	// An unknown mode comes from a later version. Treat it as the strictest known mode.
	switch state := v.State(now); {
	case state == keyserver.NoEvidence:
		return fault.RevocationUnavailable
	case v.Revoked.Has(serial):
		return fault.CertificateRevoked
	case state == keyserver.StaleEvidence:
		return fault.RevocationStale
	}
	return ""
}

// State returns whether the evidence is current, stale or missing. A CRL becomes stale at its nextUpdate, or earlier at
// the maximum age of the policy.
func (v Evidence) State(now time.Time) keyserver.EvidenceState {
	switch {
	case v.CRL == nil:
		return keyserver.NoEvidence
	case !now.Before(v.CRL.NextUpdate), v.Policy.MaxAge > 0 && now.Sub(v.CRL.ThisUpdate) > v.Policy.MaxAge:
		return keyserver.StaleEvidence
	default:
		return keyserver.CurrentEvidence
	}
}

// certificateInForce fails unless the certificate of the caller's session is in force. The certificate must be enrolled
// for the principal, not replaced, valid at this time, issued by a trusted CA, and not refused by Evidence. A session
// that was created in a certificate session has the same certificate. The gate calls this for each operation.
func (g *Gate) certificateInForce(ctx context.Context, by keyserver.Caller) error {
	if by.Kind != keyserver.CertificateSession && by.Certificate.IsZero() {
		return nil
	}
	holder := by.Principal
	if !by.Actor.ID.IsZero() {
		holder = by.Actor
	}
	c, err := g.certificates.Get(ctx, by.Certificate)
	if err != nil && !errors.Is(err, sqlstore.ErrNotFound) {
		return err
	}
	switch now := g.Clock(); {
	case err != nil, c.Principal != holder.ID:
		return fault.New(fault.SessionNotFound, "the session's certificate is no longer enrolled; enrol one and log in with it").
			Audited(fault.ReasonCertificateEnded)
	case !c.Current():
		return fault.New(fault.SessionExpired, "the session's certificate was renewed; log in with the new one").
			Audited(fault.ReasonCertificateEnded)
	case !c.ValidAt(now):
		return fault.New(fault.SessionExpired, "the session's certificate is expired or not yet valid; log in with another one").
			Audited(fault.ReasonCertificateEnded)
	}
	verdict := g.notRevoked(ctx, c)
	if fault.CodeOf(verdict) == fault.CertificateRevoked {
		return verdict // final, whether the CA is trusted or not
	}
	if err := g.issuerTrusted(ctx, c); err != nil {
		return err
	}
	return verdict
}

// notRevoked returns an error if the evidence about its CA refuses a stored certificate.
func (g *Gate) notRevoked(ctx context.Context, c keyserver.Certificate) error {
	known, err := g.issuers.Get(ctx, c.IssuerDigest, func() (Evidence, error) {
		state, serials, err := g.Store.Revocation(ctx, c.IssuerDigest)
		return Evidence{Policy: state.Policy, CRL: state.CRL, Revoked: serials}, err
	})
	if err != nil {
		return err
	}
	switch code := known.Judge(c.Serial, g.Clock()); code {
	case "":
		return nil
	case fault.CertificateRevoked:
		return fault.New(code, "the certificate of %s is revoked by its issuer; log in with a different one", c.Subject).
			Audited(fault.ReasonRevoked)
	case fault.RevocationUnavailable:
		return fault.New(code, "the policy for %s requires revocation evidence and there is none; import its CRL", c.Issuer).
			Audited(fault.ReasonNoEvidence)
	default:
		return fault.New(code, "the revocation evidence for %s is stale; import its current CRL", c.Issuer).
			Audited(fault.ReasonStaleEvidence)
	}
}
