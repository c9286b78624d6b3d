package gate

import (
	"context"
	"errors"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Evidence has the revocation policy, the CRL and the revoked serial numbers of one issuer.
type Evidence struct {
	Policy  keyserver.RevocationPolicy
	CRL     *keyserver.CRLFacts // nil if none was imported
	Revoked keyserver.SerialSet
}

// Judge returns the code of the refusal of a certificate of the issuer at a point in time, or "" if it is accepted. It
// has no side effects. A revoked certificate is refused even if the CRL is old. Missing or stale evidence is a refusal
// only if the policy requires evidence.
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
	// An unknown mode is of a later version, and is treated as the strictest known mode.
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

// State returns whether the evidence is current, stale or missing. A CRL is stale from its
// nextUpdate on, and when it is older than the maximum age of the policy.
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

// certificateInForce fails unless the certificate of the caller's session is in force. It must be enrolled for the
// principal, not replaced, within its dates, of a trusted CA, and accepted by the evidence about its issuer. A session
// that was created from a session with a certificate has that certificate. The gate calls it for each operation.
func (g *Gate) certificateInForce(ctx context.Context, by keyserver.Caller) error {
	if by.Kind != keyserver.CertificateSession && by.Certificate.IsZero() {
		return nil
	}
	holder := by.Principal
	if !by.Actor.ID.IsZero() {
		holder = by.Actor
	}
	c, err := g.standings.Get(ctx, by.Certificate)
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
		return verdict // final, independent of the trusted CAs
	}
	if err := g.issuerTrusted(ctx, c); err != nil {
		return err
	}
	return verdict
}

// notRevoked returns a refusal if the evidence about the issuer of a stored certificate refuses it.
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
