package trust

import (
	"context"
	"crypto/x509"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// RevocationIssuers implements keyserver.Revocation.
func (tr *Trust) RevocationIssuers(ctx context.Context, by keyserver.Caller) (list []keyserver.RevocationIssuer, err error) {
	err = tr.Perform(ctx, gate.Request{By: by, Op: keyserver.OpListRevocationIssuers}, func() (err error) {
		list, err = tr.revocationIssuers(ctx)
		return err
	})
	return list, err
}

func (tr *Trust) revocationIssuers(ctx context.Context) ([]keyserver.RevocationIssuer, error) {
	cas, err := tr.Store.TrustedCAs(ctx)
	if err != nil {
		return nil, err
	}
	states, err := tr.Store.RevocationStates(ctx)
	if err != nil {
		return nil, err
	}
	list := []keyserver.RevocationIssuer{}
	for _, ca := range cas {
		digest := pki.RevocationDigest(ca.DER)
		if digest == "" {
			continue // no certificate can be verified with this CA
		}
		issuer := keyserver.RevocationIssuer{Digest: digest, CA: ca, Policy: keyserver.RevocationPolicy{Mode: keyserver.RevocationOff}}
		if state, ok := states[digest]; ok {
			issuer.Policy, issuer.CRL = state.Policy, state.CRL
		}
		issuer.State = gate.Evidence{Policy: issuer.Policy, CRL: issuer.CRL}.State(tr.Clock())
		list = append(list, issuer)
	}
	return list, nil
}

// RevocationIssuer implements keyserver.Revocation.
func (tr *Trust) RevocationIssuer(ctx context.Context, by keyserver.Caller, digest string) (issuer keyserver.RevocationIssuer, err error) {
	err = tr.Perform(ctx, gate.Request{By: by, Op: keyserver.OpReadRevocationPolicy, Object: digest}, func() error {
		list, err := tr.revocationIssuers(ctx)
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
func (tr *Trust) SetRevocationPolicy(ctx context.Context, by keyserver.Caller, change keyserver.RevocationPolicyChange) error {
	return tr.Perform(ctx, gate.Request{By: by, Op: keyserver.OpSetRevocationPolicy, Object: change.Digest}, func() error {
		if policy := change.Policy; !slices.Contains(keyserver.RevocationModes, policy.Mode) || policy.MaxAge < 0 || policy.MaxAge%time.Second != 0 {
			return gate.Invalid("mode must be one of off, when-available, required, and maxAgeSeconds a whole number from 0")
		}
		return tr.Store.Update(ctx, func(tx *sqlstore.Tx) error {
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

// ImportCRL implements keyserver.Revocation. The list applies to every trusted CA that could have signed it. For
// example, a CA that was renewed with the same key has two certificates, but one list.
func (tr *Trust) ImportCRL(ctx context.Context, by keyserver.Caller, der []byte) (digests []string, err error) {
	digest := keyserver.DigestOf(der)
	err = tr.Perform(ctx, gate.Request{By: by, Op: keyserver.OpImportCRL, Object: digest.ID().Hex()}, func() error {
		now := tr.Clock()
		crl, err := pki.ParseCRL(der, now)
		if err != nil {
			return gate.Invalid("%s", err)
		}
		serials := keyserver.NewSerialSet(crl.Serials())
		facts := keyserver.CRLFacts{
			Digest: digest, Number: crl.Number(), ThisUpdate: crl.ThisUpdate(), NextUpdate: crl.NextUpdate(), ImportedAt: now, Revoked: serials.Len(),
		}
		return tr.Store.Update(ctx, func(tx *sqlstore.Tx) error {
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

// signersOf returns the revocation digests of the trusted CAs that could have signed the list.
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
		return nil, gate.Invalid("the CRL of %s must be signed by a trusted CA", crl.Issuer())
	}
	return digests, nil
}

// replaceCRL stores the list unless the stored list is newer.
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
			return gate.Invalid("the CRL must not be older than the stored one, which is of %s", held.ThisUpdate.UTC().Format(time.RFC3339))
		}
	}
	return tx.PutRevocationList(ctx, issuer, facts, serials)
}
