package client

import (
	"context"
	"net/http"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

const certificates = "/api/certificates"

// IssueCertificate has a PKCS#10 request in DER signed; 0 days leave the
// validity to the key server. NOT_SAVED, with the answer filled, where the
// certificate does not read back.
func (c *Client) IssueCertificate(ctx context.Context, request []byte, validityDays int) (schema.CertificateIssued, error) {
	in := schema.IssueCertificateRequest{Request: request}
	if validityDays != 0 {
		in.ValidityDays = &validityDays
	}
	return send[schema.CertificateIssued](ctx, c, call{method: http.MethodPost, path: certificates, body: in, nameless: true})
}

// RenewCertificate has a DER certificate issued anew from its saved request.
// NOT_FOUND where it is not current, NO_SAVED_REQUEST where it was only enrolled.
func (c *Client) RenewCertificate(ctx context.Context, der []byte) (schema.CertificateRenewed, error) {
	return post[schema.CertificateRenewed](ctx, c, certificates+"/renew", schema.RenewCertificateRequest{Certificate: der})
}

// EnrollCertificates enrols DER certificates, all or none. The principals that
// this makes get the roles that are named by their ids.
func (c *Client) EnrollCertificates(ctx context.Context, ders [][]byte, roles []string) (schema.CertificatesEnrolled, error) {
	ids, err := hexIDs("roleIds", roles)
	if err != nil {
		return schema.CertificatesEnrolled{}, err
	}
	in := schema.EnrollCertificatesRequest{Certificates: make([]schema.DER, len(ders))}
	if len(ids) > 0 {
		in.RoleIDs = ids
	}
	for i, der := range ders {
		in.Certificates[i] = der
	}
	return post[schema.CertificatesEnrolled](ctx, c, certificates+"/enroll", in)
}

// CertificatesBySubject finds certificates; % stands for any text.
func (c *Client) CertificatesBySubject(ctx context.Context, in schema.CertificatesRequest) (schema.CertificatesFound, error) {
	return post[schema.CertificatesFound](ctx, c, certificates+"/by-subject", in)
}

// CertificatesByTransportPrincipal finds enrolled certificates by their exact subject.
func (c *Client) CertificatesByTransportPrincipal(ctx context.Context, in schema.CertificatesRequest) (schema.TransportCertificates, error) {
	return post[schema.TransportCertificates](ctx, c, certificates+"/by-transport-principal", in)
}

// ResetTransportPrincipal drops a transport principal's certificates and ends
// its sessions. BUILT_IN_PRINCIPAL where it is system defined.
func (c *Client) ResetTransportPrincipal(ctx context.Context, id string) (schema.TransportPrincipalReset, error) {
	var in schema.ResetTransportPrincipalRequest
	if err := in.PrincipalID.UnmarshalText([]byte(id)); err != nil {
		return schema.TransportPrincipalReset{}, refuse("principalId", err)
	}
	return post[schema.TransportPrincipalReset](ctx, c, "/api/transport-principals/reset", in)
}
