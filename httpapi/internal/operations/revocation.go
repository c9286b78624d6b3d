package operations

import (
	"context"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func listRevocationIssuers(ctx context.Context, ops *verified.Service, by keyserver.Caller, _ routes.Nothing) (schema.RevocationIssuerList, error) {
	list, err := ops.RevocationIssuers(ctx, by)
	if err != nil {
		return schema.RevocationIssuerList{}, err
	}
	return schema.RevocationIssuerList{
		Count: len(list), Issuers: Convert(list, revocationIssuerOf), Detail: "all trusted CAs; a CA without a policy has the mode off" + unenforcedIssuers(list),
	}, nil
}

// unenforcedIssuers names the issuers whose imported CRL is not enforced, because their mode is off.
func unenforcedIssuers(list []keyserver.RevocationIssuer) string {
	var subjects []string
	for _, r := range list {
		if r.CRL != nil && r.Policy.Mode == keyserver.RevocationOff {
			subjects = append(subjects, r.CA.Subject)
		}
	}
	if len(subjects) == 0 {
		return ""
	}
	return "; the imported CRL has no effect, because the mode is off: " + strings.Join(subjects, ", ")
}

func getRevocationPolicy(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.ByDigest) (schema.RevocationPolicy, error) {
	p, err := ops.RevocationPolicy(ctx, by, string(in.Digest))
	if err != nil {
		return schema.RevocationPolicy{}, err
	}
	return schema.RevocationPolicy{
		Digest: in.Digest, Mode: string(p.Mode), MaxAgeSeconds: seconds(p.MaxAge), Detail: "the stored policy",
	}, nil
}

func setRevocationPolicy(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.SetRevocationPolicyRequest) (schema.RevocationPolicySaved, error) {
	r, err := ops.SetRevocationPolicy(ctx, by, keyserver.RevocationPolicyChange{
		Digest: string(in.Digest),
		Policy: keyserver.RevocationPolicy{Mode: keyserver.RevocationMode(in.Mode), MaxAge: time.Duration(in.MaxAgeSeconds) * time.Second},
	})
	return schema.RevocationPolicySaved{
		Saved: r.Saved, Digest: schema.IssuerDigest(r.Digest), Mode: string(r.Policy.Mode), MaxAgeSeconds: seconds(r.Policy.MaxAge),
		Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}

func importCRL(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.ImportCRLRequest) (schema.CRLImported, error) {
	r, err := ops.ImportCRL(ctx, by, in.CRL)
	return schema.CRLImported{
		Saved: r.Saved, Count: len(r.Issuers), Issuers: Convert(r.Issuers, revocationIssuerOf), Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}

func revocationIssuerOf(r keyserver.RevocationIssuer) schema.RevocationIssuer {
	out := schema.RevocationIssuer{
		Digest: schema.IssuerDigest(r.Digest), CertificateID: schema.Base64ID(r.CA.ID), Subject: r.CA.Subject,
		Mode: string(r.Policy.Mode), MaxAgeSeconds: seconds(r.Policy.MaxAge), Evidence: string(r.State),
	}
	if r.CRL != nil {
		out.CRL = &schema.CRL{
			Digest: r.CRL.Digest[:], ThisUpdate: r.CRL.ThisUpdate.UTC(), NextUpdate: r.CRL.NextUpdate.UTC(),
			ImportedAt: r.CRL.ImportedAt.UTC(), Revoked: r.CRL.Revoked,
		}
		if len(r.CRL.Number) > 0 {
			number := schema.Base64(r.CRL.Number)
			out.CRL.Number = &number
		}
	}
	return out
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }
