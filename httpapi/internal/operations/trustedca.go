package operations

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func listTrustedCAs(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.TrustedCAsQuery) (schema.TrustedCAList, error) {
	list, err := ops.TrustedCAs(ctx, by)
	if err != nil {
		return schema.TrustedCAList{}, err
	}
	show := certificateOf
	if in.IncludeBodies {
		show = certificateWithBody
	}
	return schema.TrustedCAList{Count: len(list), TrustedCAs: Convert(list, func(ca keyserver.Certificate) schema.TrustedCA {
		return schema.TrustedCA{Certificate: show(ca), RevocationDigest: known(pki.RevocationDigest(ca.DER))}
	})}, nil
}

func addTrustedCA(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.AddTrustedCARequest) (schema.TrustedCAAdded, error) {
	r, err := ops.AddTrustedCA(ctx, by, in.Certificate)
	return schema.TrustedCAAdded{
		Saved: r.Saved, MatchedBy: r.MatchedBy, WasAlreadyPresent: r.WasAlreadyPresent,
		ListCountBefore: r.ListCountBefore, ListCountAfter: r.ListCountAfter,
		AppearedCount: r.AppearedCount, EchoedCount: r.EchoedCount,
		Verdict:   schema.Verdict{Detail: r.Detail},
		TrustedCA: optional(r.TrustedCA, certificateOf),
	}, err
}

func removeTrustedCA(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.RemoveTrustedCARequest) (schema.TrustedCARemoved, error) {
	r, err := ops.RemoveTrustedCA(ctx, by, keyserver.ID(in.CertificateID))
	return schema.TrustedCARemoved{
		Gone: r.Gone, CertificateID: schema.Base64ID(r.ID),
		ListCountBefore: r.ListCountBefore, ListCountAfter: r.ListCountAfter, EchoedObjects: r.EchoedObjects,
		TrustedCA: certificateOf(r.TrustedCA),
		Verdict:   schema.Verdict{Detail: r.Detail},
	}, err
}
