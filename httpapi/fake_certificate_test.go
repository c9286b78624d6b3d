package httpapi

import (
	"context"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/verified"
)

var (
	aLeaf = keyserver.Certificate{
		ID: someID, Status: keyserver.StatusRegular, Subject: "/CN=agent", Issuer: "/CN=ca", KeyType: "EC P-256", Serial: []byte{1},
		NotBefore: epoch, NotAfter: epoch, DER: []byte{0x30, 0}, Request: []byte{0x30, 1}, Principal: someID, System: 1,
	}
	anIssuer = keyserver.RevocationIssuer{
		Digest: strings.Repeat("AB", 32), CA: aCA, Policy: keyserver.RevocationPolicy{Mode: keyserver.RevocationRequired, MaxAge: 90e9},
		CRL: &keyserver.CRLFacts{Number: []byte{1}, ThisUpdate: epoch, NextUpdate: epoch, ImportedAt: epoch}, State: keyserver.CurrentEvidence,
	}
)

// verdict is what a verified write answers: the result with the fault where
// the fake is bad, and one of them otherwise.
func verdict[T any](f *fakeOperations, r T, err error) (T, error) {
	if f.bad {
		return r, err
	}
	return answer(r, err)
}

func (f *fakeOperations) CertificatesBySubject(ctx context.Context, _ keyserver.Caller, pattern string) (verified.CertificatesFound, error) {
	return answer(verified.CertificatesFound{
		Lookup: verified.LookupBySubject, Subject: pattern, Certificates: []keyserver.Certificate{aLeaf, {ID: someID}}, Detail: "evidence",
	}, f.called(ctx, "CertificatesBySubject", pattern))
}

func (f *fakeOperations) CertificatesByTransportPrincipal(ctx context.Context, _ keyserver.Caller, subject string) (verified.CertificatesFound, error) {
	return answer(verified.CertificatesFound{
		Lookup: verified.LookupByTransportPrincipal, Subject: subject, Principal: someRef, Certificates: []keyserver.Certificate{aLeaf}, Detail: "evidence",
	}, f.called(ctx, "CertificatesByTransportPrincipal", subject))
}

func (f *fakeOperations) IssueCertificate(ctx context.Context, _ keyserver.Caller, n keyserver.CertificateRequest) (verified.CertificateIssued, error) {
	r := verified.CertificateIssued{Saved: !f.bad, Chain: []byte{1}, Certificate: aLeaf, Detail: "evidence"}
	return verdict(f, r, f.called(ctx, "IssueCertificate", n.Request))
}

func (f *fakeOperations) RenewCertificate(ctx context.Context, _ keyserver.Caller, der []byte) (verified.CertificateIssued, error) {
	r := verified.CertificateIssued{Saved: !f.bad, Chain: []byte{1}, Certificate: aLeaf, Detail: "evidence"}
	return verdict(f, r, f.called(ctx, "RenewCertificate", der))
}

func (f *fakeOperations) EnrollCertificates(ctx context.Context, _ keyserver.Caller, n keyserver.Enrolment) (verified.CertificatesEnrolled, error) {
	r := verified.CertificatesEnrolled{Saved: !f.bad, Detail: "evidence", Principals: []verified.EnrolledPrincipal{
		{Principal: aUser, Certificates: []keyserver.Certificate{aLeaf}, Created: true},
	}}
	return verdict(f, r, f.called(ctx, "EnrollCertificates", n))
}

func (f *fakeOperations) ResetTransportPrincipal(ctx context.Context, _ keyserver.Caller, id keyserver.ID) (verified.TransportReset, error) {
	return verdict(f, verified.TransportReset{Reset: !f.bad, Principal: aUser, Detail: "evidence"}, f.called(ctx, "ResetTransportPrincipal", id))
}

func (f *fakeOperations) RevocationIssuers(ctx context.Context, _ keyserver.Caller) ([]keyserver.RevocationIssuer, error) {
	none := keyserver.RevocationIssuer{Digest: strings.Repeat("CD", 48), CA: aCA, Policy: keyserver.RevocationPolicy{Mode: keyserver.RevocationOff}, State: keyserver.NoEvidence}
	return answer([]keyserver.RevocationIssuer{anIssuer, none}, f.called(ctx, "RevocationIssuers", nil))
}

func (f *fakeOperations) RevocationPolicy(ctx context.Context, _ keyserver.Caller, digest string) (keyserver.RevocationPolicy, error) {
	return answer(anIssuer.Policy, f.called(ctx, "RevocationPolicy", digest))
}

func (f *fakeOperations) SetRevocationPolicy(ctx context.Context, _ keyserver.Caller, c keyserver.RevocationPolicyChange) (verified.PolicySaved, error) {
	return verdict(f, verified.PolicySaved{Saved: !f.bad, Digest: c.Digest, Policy: c.Policy, Detail: "evidence"}, f.called(ctx, "SetRevocationPolicy", c.Policy))
}

func (f *fakeOperations) ImportCRL(ctx context.Context, _ keyserver.Caller, der []byte) (verified.CRLImported, error) {
	r := verified.CRLImported{Saved: !f.bad, Issuers: []keyserver.RevocationIssuer{anIssuer}, Detail: "evidence"}
	return verdict(f, r, f.called(ctx, "ImportCRL", der))
}

func (f *fakeOperations) ExportKey(ctx context.Context, _ keyserver.Caller, x keyserver.KeyExport) (keyserver.ExportedKey, error) {
	return answer(keyserver.ExportedKey{JWE: "a.b.c.d.e", Algorithm: "RSA-OAEP-256", Recipient: aUser, Certificate: aLeaf}, f.called(ctx, "ExportKey", x.Recipient))
}
