package gate

import (
	"context"
	"errors"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Evidence is what is known about the certificates of one issuer.
type Evidence struct {
	Policy  keyserver.RevocationPolicy
	CRL     *keyserver.CRLFacts // nil where none was imported
	Revoked keyserver.SerialSet
}

// Judge decides about a certificate of the issuer at a point in time: the
// empty code lets it pass. It is pure. A certificate that was named stays
// refused however old the list has become, and evidence that is missing or
// stale counts against a certificate only where the policy requires it.
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
	// A mode that is not known is one of a later version: the strictest of ours.
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

// State is how fresh the evidence is. A list is stale from its nextUpdate on,
// and once it is older than the policy's maximum age.
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

// certificateInForce is the gate's question to a caller that logged in with a
// certificate, or whose session was made from one that was: is that certificate still enrolled for the principal, current,
// within its dates, of a CA that is trusted, and not refused by the evidence about its issuer. It is
// asked anew for each operation.
func (g *Gate) certificateInForce(ctx context.Context, by keyserver.Caller) error {
	if by.Kind != keyserver.CertificateSession && by.Certificate.IsZero() {
		return nil
	}
	holder := by.Principal
	if !by.Actor.ID.IsZero() {
		holder = by.Actor
	}
	c, err := g.standings.Get(ctx, by.Certificate, func() (keyserver.Certificate, error) {
		return g.Store.CertificateByID(ctx, by.Certificate)
	})
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
		return fault.New(fault.SessionExpired, "the session's certificate is outside its dates; log in with another one").
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

// notRevoked judges a stored certificate by what is known about its issuer.
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
