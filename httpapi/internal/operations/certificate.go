package operations

import (
	"context"
	"crypto/sha256"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// certificateClass is the key server class of stored certificates.
const certificateClass = "Certificate"

// byteExact describes how the subject of a transport principal is
// matched (contract 12.1).
const byteExact = "byte-exact, NO WILDCARD"

func certificatesBySubject(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.CertificatesRequest) (schema.CertificatesFound, error) {
	r, err := ops.CertificatesBySubject(ctx, by, in.Subject)
	if err != nil {
		return schema.CertificatesFound{}, err
	}
	return foundOf(r, in.IncludeBodies), nil
}

func certificatesByTransportPrincipal(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.CertificatesRequest) (schema.TransportCertificates, error) {
	r, err := ops.CertificatesByTransportPrincipal(ctx, by, in.Subject)
	if err != nil {
		return schema.TransportCertificates{}, err
	}
	return schema.TransportCertificates{
		CertificatesFound: foundOf(r, in.IncludeBodies), Matched: byteExact,
		WildcardEquivalent: schema.WildcardEquivalent{Path: routes.BySubjectPath, Subject: in.Subject + "%"},
	}, nil
}

func issueCertificate(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.IssueCertificateRequest) (schema.CertificateIssued, error) {
	n := keyserver.CertificateRequest{Request: in.Request}
	if in.ValidityDays != nil {
		n.ValidityDays = *in.ValidityDays
	}
	r, err := ops.IssueCertificate(ctx, by, n)
	return schema.CertificateIssued{Saved: r.Saved, Certificate: r.Certificate.DER, CertificateRenewed: renewedOf(r)}, err
}

func renewCertificate(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.RenewCertificateRequest) (schema.CertificateRenewed, error) {
	r, err := ops.RenewCertificate(ctx, by, in.Certificate)
	return renewedOf(r), err
}

func enrollCertificates(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.EnrollCertificatesRequest) (schema.CertificatesEnrolled, error) {
	ders := make([][]byte, len(in.Certificates))
	for i, der := range in.Certificates {
		ders[i] = der
	}
	r, err := ops.EnrollCertificates(ctx, by, keyserver.Enrolment{Certificates: ders, Roles: idsOf(in.RoleIDs)})
	return schema.CertificatesEnrolled{
		Saved: r.Saved, Count: len(r.Principals), Verdict: schema.Verdict{Detail: r.Detail},
		Principals: Convert(r.Principals, func(p verified.EnrolledPrincipal) schema.EnrolledPrincipal {
			return schema.EnrolledPrincipal{Principal: principalOf(p.Principal), Created: p.Created, Certificates: Convert(p.Certificates, certificateOf)}
		}),
	}, err
}

func resetTransportPrincipal(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.ResetTransportPrincipalRequest) (schema.TransportPrincipalReset, error) {
	r, err := ops.ResetTransportPrincipal(ctx, by, keyserver.ID(in.PrincipalID))
	return schema.TransportPrincipalReset{
		Reset: r.Reset, CertificatesRemoved: r.CertificatesRemoved, Principal: principalOf(r.Principal), Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}

func foundOf(r verified.CertificatesFound, bodies bool) schema.CertificatesFound {
	show := certificateOf
	if bodies {
		show = certificateWithBody
	}
	out := schema.CertificatesFound{
		Lookup: r.Lookup, Subject: r.Subject, Count: len(r.Certificates), BodiesIncluded: bodies,
		Certificates: Convert(r.Certificates, show), Detail: r.Detail,
	}
	if !r.Principal.ID.IsZero() {
		system, id := schema.SystemID(r.Principal.System), schema.DecimalID(r.Principal.ID)
		out.SystemID, out.PrincipalID = &system, &id
	}
	return out
}

func renewedOf(r verified.CertificateIssued) schema.CertificateRenewed {
	return schema.CertificateRenewed{
		Chain: r.Chain, CertificateID: schema.HexID(r.Certificate.ID), CertificateIDBytes: len(r.Certificate.ID),
		Verdict: schema.Verdict{Detail: r.Detail},
	}
}

// certificateWithBody converts a certificate with its DER encoding and its stored request, if there are any.
func certificateWithBody(c keyserver.Certificate) schema.Certificate {
	out := certificateOf(c)
	if len(c.DER) > 0 {
		body := schema.Base64(c.DER)
		out.Certificate = &body
	}
	if len(c.Request) > 0 {
		request := schema.Base64(c.Request)
		out.Request = &request
	}
	return out
}

// certificateOf converts a certificate without its DER encoding. Values that the key server does not know become null.
func certificateOf(c keyserver.Certificate) schema.Certificate {
	id, class, status := schema.Base64ID(c.ID), certificateClass, int(c.Status)
	out := schema.Certificate{
		CertificateID: &id, ClassName: &class, Subject: known(c.Subject), Issuer: known(c.Issuer),
		PublicKeyType: known(c.KeyType), Status: &status, StatusLabel: known(c.Status.Label()),
	}
	if len(c.Serial) > 0 {
		serial := schema.Base64(c.Serial)
		out.SerialNumber = &serial
	}
	if len(c.DER) > 0 {
		sum := sha256.Sum256(c.DER)
		hash := schema.Base64(sum[:])
		out.CertHash = &hash
	}
	if !c.NotBefore.IsZero() {
		from := c.NotBefore.UTC()
		out.EffectiveDate = &from
	}
	if !c.NotAfter.IsZero() {
		until := c.NotAfter.UTC()
		out.ExpirationDate = &until
	}
	return out
}

func known(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
