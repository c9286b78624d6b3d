package verified

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// maxCRLAge is the maximum of the maximum age in a policy. A larger value could be a mistake that means "never".
const maxCRLAge = 366 * 24 * time.Hour

// PolicySaved is the result of setting a revocation policy.
type PolicySaved struct {
	Saved  bool
	Digest string
	Policy keyserver.RevocationPolicy // as read back
	Detail string
}

// CRLImported is the result of importing a revocation list.
type CRLImported struct {
	Saved   bool
	Issuers []keyserver.RevocationIssuer // the CAs that signed the list, as read back
	Detail  string
}

// RevocationIssuers reads all trusted CAs with their revocation policy and evidence.
func (s *Service) RevocationIssuers(ctx context.Context, by keyserver.Caller) ([]keyserver.RevocationIssuer, error) {
	return s.ks.RevocationIssuers(ctx, by)
}

// RevocationPolicy reads the revocation policy for one CA.
func (s *Service) RevocationPolicy(ctx context.Context, by keyserver.Caller, digest string) (keyserver.RevocationPolicy, error) {
	issuer, err := s.ks.RevocationIssuer(ctx, by, digest)
	return issuer.Policy, err
}

// SetRevocationPolicy sets the revocation policy for one CA. It verifies mode and maximum age.
func (s *Service) SetRevocationPolicy(ctx context.Context, by keyserver.Caller, change keyserver.RevocationPolicyChange) (PolicySaved, error) {
	switch policy := change.Policy; {
	case !slices.Contains(keyserver.RevocationModes, policy.Mode):
		return PolicySaved{}, fault.New(fault.BadRequest, "mode: must be one of off, when-available, required")
	case policy.MaxAge < 0 || policy.MaxAge > maxCRLAge || policy.MaxAge%time.Second != 0:
		return PolicySaved{}, fault.New(fault.BadRequest, "maxAgeSeconds: must be from 0 to %d; with 0, only nextUpdate of the CRL limits its age", maxCRLAge/time.Second)
	}
	return verifiedWrite[keyserver.RevocationPolicy, PolicySaved]{
		read: func(ctx context.Context) (keyserver.RevocationPolicy, error) {
			return s.RevocationPolicy(ctx, by, change.Digest)
		},
		write: func(ctx context.Context, _ keyserver.RevocationPolicy) error {
			return s.ks.SetRevocationPolicy(ctx, by, change)
		},
		unread: fault.ReadbackFailed,
		verdict: func(_, after keyserver.RevocationPolicy) (PolicySaved, error) {
			r := PolicySaved{Digest: change.Digest, Policy: after, Saved: after == change.Policy, Detail: "a fresh read shows mode and maxAgeSeconds as sent; they apply from the next operation on"}
			if !r.Saved {
				r.Detail = fmt.Sprintf("a fresh read shows the policy %s with a maximum age of %d seconds", after.Mode, after.MaxAge/time.Second)
				return r, fault.New(fault.NotSaved, "%s", r.Detail)
			}
			return r, nil
		},
	}.do(ctx)
}

// ImportCRL imports a revocation list. It verifies that all CAs that signed the list now use it.
func (s *Service) ImportCRL(ctx context.Context, by keyserver.Caller, der []byte) (CRLImported, error) {
	if len(der) == 0 {
		return CRLImported{}, fault.New(fault.BadRequest, "crl: must not be empty; send one certificate revocation list")
	}
	var digests []string
	return verifiedWrite[[]keyserver.RevocationIssuer, CRLImported]{
		read: func(ctx context.Context) ([]keyserver.RevocationIssuer, error) {
			return s.ks.RevocationIssuers(ctx, by)
		},
		write: func(ctx context.Context, _ []keyserver.RevocationIssuer) (err error) {
			digests, err = s.ks.ImportCRL(ctx, by, der)
			return err
		},
		unread: fault.ReadbackFailed,
		verdict: func(_, after []keyserver.RevocationIssuer) (CRLImported, error) {
			return judgeCRL(keyserver.DigestOf(der), digests, after)
		},
	}.do(ctx)
}

func judgeCRL(sent keyserver.Digest, digests []string, after []keyserver.RevocationIssuer) (CRLImported, error) {
	r := CRLImported{Issuers: []keyserver.RevocationIssuer{}}
	off := 0
	for _, issuer := range after {
		if !slices.Contains(digests, issuer.Digest) || issuer.CRL == nil || issuer.CRL.Digest != sent {
			continue
		}
		r.Issuers = append(r.Issuers, issuer)
		if issuer.Policy.Mode == keyserver.RevocationOff {
			off++
		}
	}
	if len(r.Issuers) == 0 || len(r.Issuers) != len(digests) {
		r.Detail = "the key server accepted the CRL, but a fresh read does not show it as the evidence of its issuer"
		return r, fault.New(fault.NotSaved, "%s", r.Detail)
	}
	r.Saved = true
	r.Detail = fmt.Sprintf("a fresh read shows the CRL as the evidence of its issuer; it revokes %d certificates", r.Issuers[0].CRL.Revoked)
	if off > 0 {
		r.Detail += "; it has no effect while the issuer's policy is off: change the policy with PUT /api/revocation/issuers/{digest}/policy"
	}
	return r, nil
}
