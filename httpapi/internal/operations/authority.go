package operations

import (
	"context"
	"crypto/x509"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func listAuthorities(ctx context.Context, ops *verified.Service, by keyserver.Caller, _ routes.Nothing) (schema.AuthorityList, error) {
	list, err := ops.Authorities(ctx, by)
	return schema.AuthorityList{Authorities: Convert(list, authorityOf)}, err
}

func prepareAuthority(ctx context.Context, ops *verified.Service, by keyserver.Caller, _ routes.Nothing) (schema.AuthorityChanged, error) {
	r, err := ops.PrepareAuthority(ctx, by)
	return schema.AuthorityChanged{
		Saved: r.Saved, CertificateID: schema.Base64ID(r.ID), Authorities: Convert(r.Authorities, authorityOf), Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}

func activateAuthority(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.ActivateAuthorityRequest) (schema.AuthorityChanged, error) {
	r, err := ops.ActivateAuthority(ctx, by, in.Early)
	return schema.AuthorityChanged{
		Saved: r.Saved, CertificateID: schema.Base64ID(r.ID), Authorities: Convert(r.Authorities, authorityOf), Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}

func retireAuthority(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.RetireAuthorityRequest) (schema.AuthorityGone, error) {
	r, err := ops.RetireAuthority(ctx, by, keyserver.ID(in.CertificateID))
	return schema.AuthorityGone{
		Gone: r.Gone, CertificateID: schema.Base64ID(r.ID), Authorities: Convert(r.Authorities, authorityOf), Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}

func authorityOf(a keyserver.Authority) schema.Authority {
	s := schema.Authority{
		CertificateID: schema.Base64ID(a.ID), State: string(a.State), Certificate: a.Certificate,
		PreparedAt: a.PreparedAt, ActivatedAt: a.ActivatedAt, RetiringAt: a.RetiringAt,
	}
	if cert, err := x509.ParseCertificate(a.Certificate); err == nil {
		s.Subject, s.NotBefore, s.NotAfter = pki.SlashName(cert.Subject), cert.NotBefore.UTC(), cert.NotAfter.UTC()
	}
	return s
}
