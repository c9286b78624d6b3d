package engine

import (
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// evidence is what is known about the certificates of one issuer.
type evidence struct {
	policy  keyserver.RevocationPolicy
	crl     *keyserver.CRLFacts // nil where none was imported
	revoked keyserver.SerialSet
}

// judge decides about a certificate of the issuer at a point in time: the
// empty code lets it pass. It is pure. A certificate that was named stays
// refused however old the list has become, and evidence that is missing or
// stale counts against a certificate only where the policy requires it.
func (v evidence) judge(serial []byte, now time.Time) fault.Code {
	switch v.policy.Mode {
	case keyserver.RevocationOff:
		return ""
	case keyserver.RevocationWhenAvailable:
		if v.crl != nil && v.revoked.Has(serial) {
			return fault.CertificateRevoked
		}
		return ""
	case keyserver.RevocationRequired:
	}
	// A mode that is not known is one of a later version: the strictest of ours.
	switch state := v.state(now); {
	case state == keyserver.NoEvidence:
		return fault.RevocationUnavailable
	case v.revoked.Has(serial):
		return fault.CertificateRevoked
	case state == keyserver.StaleEvidence:
		return fault.RevocationStale
	}
	return ""
}

// state is how fresh the evidence is. A list is stale from its nextUpdate on,
// and once it is older than the policy's maximum age.
func (v evidence) state(now time.Time) keyserver.EvidenceState {
	switch {
	case v.crl == nil:
		return keyserver.NoEvidence
	case !now.Before(v.crl.NextUpdate), v.policy.MaxAge > 0 && now.Sub(v.crl.ThisUpdate) > v.policy.MaxAge:
		return keyserver.StaleEvidence
	default:
		return keyserver.CurrentEvidence
	}
}

// certificateInForce is the gate's question to a caller that logged in with a
// certificate, or whose session was made from one that was: is that certificate still enrolled for the principal, current,
// within its dates, of a CA that is trusted, and not refused by the evidence about its issuer. It is
// asked anew for each operation.
func (e *Engine) certificateInForce(ctx context.Context, by keyserver.Caller) error {
	if by.Kind != keyserver.CertificateSession && by.Certificate.IsZero() {
		return nil
	}
	holder := by.Principal
	if !by.Actor.ID.IsZero() {
		holder = by.Actor
	}
	c, err := e.standings.Get(ctx, by.Certificate, func() (keyserver.Certificate, error) {
		return e.Store.CertificateByID(ctx, by.Certificate)
	})
	if err != nil && !errors.Is(err, sqlstore.ErrNotFound) {
		return err
	}
	switch now := e.Clock(); {
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
	verdict := e.notRevoked(ctx, c)
	if fault.CodeOf(verdict) == fault.CertificateRevoked {
		return verdict // final, whoever is trusted
	}
	if err := e.issuerTrusted(ctx, c); err != nil {
		return err
	}
	return verdict
}

// notRevoked judges a stored certificate by what is known about its issuer.
func (e *Engine) notRevoked(ctx context.Context, c keyserver.Certificate) error {
	known, err := e.issuers.Get(ctx, c.IssuerDigest, func() (evidence, error) {
		state, serials, err := e.Store.Revocation(ctx, c.IssuerDigest)
		return evidence{policy: state.Policy, crl: state.CRL, revoked: serials}, err
	})
	if err != nil {
		return err
	}
	switch code := known.judge(c.Serial, e.Clock()); code {
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

// RevocationIssuers implements keyserver.Revocation.
func (e *Engine) RevocationIssuers(ctx context.Context, by keyserver.Caller) (list []keyserver.RevocationIssuer, err error) {
	err = e.perform(ctx, request{by: by, op: keyserver.OpListRevocationIssuers}, func() (err error) {
		list, err = e.revocationIssuers(ctx)
		return err
	})
	return list, err
}

func (e *Engine) revocationIssuers(ctx context.Context) ([]keyserver.RevocationIssuer, error) {
	cas, err := e.Store.TrustedCAs(ctx)
	if err != nil {
		return nil, err
	}
	states, err := e.Store.RevocationStates(ctx)
	if err != nil {
		return nil, err
	}
	list := []keyserver.RevocationIssuer{}
	for _, ca := range cas {
		digest := pki.RevocationDigest(ca.DER)
		if digest == "" {
			continue // no certificate can be shown to be of this CA
		}
		issuer := keyserver.RevocationIssuer{Digest: digest, CA: ca, Policy: keyserver.RevocationPolicy{Mode: keyserver.RevocationOff}}
		if state, ok := states[digest]; ok {
			issuer.Policy, issuer.CRL = state.Policy, state.CRL
		}
		issuer.State = evidence{policy: issuer.Policy, crl: issuer.CRL}.state(e.Clock())
		list = append(list, issuer)
	}
	return list, nil
}

// RevocationIssuer implements keyserver.Revocation.
func (e *Engine) RevocationIssuer(ctx context.Context, by keyserver.Caller, digest string) (issuer keyserver.RevocationIssuer, err error) {
	err = e.perform(ctx, request{by: by, op: keyserver.OpReadRevocationPolicy, object: digest}, func() error {
		list, err := e.revocationIssuers(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(list, func(r keyserver.RevocationIssuer) bool { return r.Digest == digest })
		if i < 0 {
			return noIssuer(digest)
		}
		issuer = list[i]
		return nil
	})
	return issuer, err
}

func noIssuer(digest string) error {
	return fault.New(fault.NotFound, "no trusted CA has the revocation digest %s", digest).Audited(fault.ReasonObjectNotFound)
}

// SetRevocationPolicy implements keyserver.Revocation.
func (e *Engine) SetRevocationPolicy(ctx context.Context, by keyserver.Caller, change keyserver.RevocationPolicyChange) error {
	return e.perform(ctx, request{by: by, op: keyserver.OpSetRevocationPolicy, object: change.Digest}, func() error {
		if policy := change.Policy; !slices.Contains(keyserver.RevocationModes, policy.Mode) || policy.MaxAge < 0 || policy.MaxAge%time.Second != 0 {
			return invalid("the policy is not one of this key server's")
		}
		return e.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			cas, err := tx.TrustedCAs(ctx)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(cas, func(c keyserver.Certificate) bool { return pki.RevocationDigest(c.DER) == change.Digest }) {
				return noIssuer(change.Digest)
			}
			return tx.PutRevocationPolicy(ctx, change.Digest, change.Policy)
		})
	})
}

// ImportCRL implements keyserver.Revocation. A list counts for every trusted
// CA that could have signed it: a CA that was renewed under its old key has
// two certificates and one list.
func (e *Engine) ImportCRL(ctx context.Context, by keyserver.Caller, der []byte) (digests []string, err error) {
	digest := keyserver.DigestOf(der)
	err = e.perform(ctx, request{by: by, op: keyserver.OpImportCRL, object: digest.ID().Hex()}, func() error {
		now := e.Clock()
		crl, err := pki.ParseCRL(der, now)
		if err != nil {
			return invalid("%s", err)
		}
		serials := keyserver.NewSerialSet(crl.Serials())
		facts := keyserver.CRLFacts{
			Digest: digest, Number: crl.Number(), ThisUpdate: crl.ThisUpdate(), NextUpdate: crl.NextUpdate(), ImportedAt: now, Revoked: serials.Len(),
		}
		return e.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			digests, err = signersOf(ctx, tx, crl)
			if err != nil {
				return err
			}
			for _, issuer := range digests {
				if err := replaceCRL(ctx, tx, issuer, crl, facts, serials); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return digests, nil
}

// signersOf are the revocation digests of the trusted CAs that signed the list.
func signersOf(ctx context.Context, tx *sqlstore.Tx, crl pki.CRL) ([]string, error) {
	cas, err := tx.TrustedCAs(ctx)
	if err != nil {
		return nil, err
	}
	var digests []string
	for _, c := range cas {
		if ca, err := x509.ParseCertificate(c.DER); err == nil && crl.SignedBy(ca) {
			digests = append(digests, pki.RevocationDigest(c.DER))
		}
	}
	if len(digests) == 0 {
		return nil, invalid("the list of %s is not signed by a trusted CA", crl.Issuer())
	}
	return digests, nil
}

// replaceCRL stores the list unless that would go back behind the one held.
func replaceCRL(ctx context.Context, tx *sqlstore.Tx, issuer string, crl pki.CRL, facts keyserver.CRLFacts, serials keyserver.SerialSet) error {
	state, _, err := tx.Revocation(ctx, issuer)
	if err != nil {
		return err
	}
	if held := state.CRL; held != nil {
		if held.Digest == facts.Digest {
			return nil
		}
		if crl.OlderThan(held.Number, held.ThisUpdate) {
			return invalid("the list is older than the one held, which is of %s", held.ThisUpdate.UTC().Format(time.RFC3339))
		}
	}
	return tx.PutRevocationList(ctx, issuer, facts, serials)
}
