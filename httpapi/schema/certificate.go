package schema

import "time"

// Certificate is a certificate as the key server stores it. Fields that the
// key server does not know are null.
type Certificate struct {
	CertificateID  *Base64ID  `json:"certificateId" doc:"Canonical base64 of 8 bytes, the spelling that trust routes take."`
	ClassName      *string    `json:"className" doc:"The key server's class of the object."`
	Subject        *string    `json:"subject" doc:"The whole stored name, slash-prefixed and slash-separated."`
	Issuer         *string    `json:"issuer"`
	PublicKeyType  *string    `json:"publicKeyType"`
	SerialNumber   *Base64    `json:"serialNumber" doc:"Big-endian."`
	CertHash       *Base64    `json:"certHash" doc:"SHA-256 of the DER."`
	EffectiveDate  *time.Time `json:"effectiveDate" doc:"Its notBefore."`
	ExpirationDate *time.Time `json:"expirationDate" doc:"Its notAfter."`
	Status         *int       `json:"status" doc:"The status word, which is no error flag: 1 CA, 2 Regular, 3 Saved request, 4 Trusted server, 5 Expired."`
	StatusLabel    *string    `json:"statusLabel" enum:"CA,Regular,Saved request,Trusted server,Expired" doc:"The same in words."`
	Certificate    *Base64    `json:"certificate,omitzero" doc:"The DER, where bodies were asked for."`
	Request        *Base64    `json:"request,omitzero" doc:"The stored certificate request, where bodies were asked for."`
}

// CertificatesRequest finds certificates by subject.
type CertificatesRequest struct {
	Subject       string `json:"subject" limit:"1..1024" doc:"In slash form, for instance /C=DE/CN=agent."`
	IncludeBodies bool   `json:"includeBodies,omitzero" doc:"Also answer each certificate's DER and saved request."`
}

// CertificatesFound is the response of a lookup.
type CertificatesFound struct {
	Lookup         string        `json:"lookup" enum:"by-id,by-subject,by-transport-principal,from-certificate" doc:"How the certificates were found."`
	SystemID       *SystemID     `json:"systemId,omitzero" doc:"Of the transport principal whose certificates they all are."`
	PrincipalID    *DecimalID    `json:"principalId,omitzero" doc:"Likewise."`
	Subject        string        `json:"subject,omitzero" doc:"As it was sent."`
	Count          int           `json:"count"`
	BodiesIncluded bool          `json:"bodiesIncluded" doc:"The DER of each, and its saved request, were asked for."`
	Certificates   []Certificate `json:"certificates"`
	Detail         string        `json:"detail" doc:"For people; its wording may change."`
}

// WildcardEquivalent is a broader search. The service does not run it by itself.
type WildcardEquivalent struct {
	Path    string `json:"path" doc:"The route of that search."`
	Subject string `json:"subject" doc:"The subject sent, with the wildcard at its end."`
}

// TransportCertificates is the response of a lookup by transport principal.
type TransportCertificates struct {
	CertificatesFound
	Matched            string             `json:"matched" doc:"Always: byte-exact, NO WILDCARD."`
	WildcardEquivalent WildcardEquivalent `json:"wildcardEquivalent" doc:"The search that would have matched by a wildcard."`
}

// IssueCertificateRequest requests a certificate.
type IssueCertificateRequest struct {
	Request DER `json:"request" names:"-" limit:"1..65536" doc:"One PKCS#10 request. Its subject and its key count, nothing else."`
	// ValidityDays is nil if the key server chooses.
	ValidityDays *int `json:"validityDays,omitzero" limit:"1..3650" doc:"Left out, a year."`
}

// RenewCertificateRequest names a certificate by its body.
type RenewCertificateRequest struct {
	Certificate DER `json:"certificate" names:"certificate" limit:"1..65536" doc:"The certificate to replace."`
}

// CertificateRenewed is the verdict on issuing a certificate.
type CertificateRenewed struct {
	Chain              Base64 `json:"chain" doc:"PKCS#7 with the certificate and its issuer, for instance for openssl pkcs7 -inform DER; empty where nothing reads back."`
	CertificateID      HexID  `json:"certificateId" doc:"Digest id: the first 8 bytes of the SHA-256 of the DER, in hexadecimal."`
	CertificateIDBytes int    `json:"certificateIdBytes,omitzero" doc:"Length of the digest id."`
	Verdict
}

// Unproven returns "" if the certificate reads back.
func (r CertificateRenewed) Unproven() string { return unshown(len(r.Chain) > 0, "the certificate") }

// CertificateIssued is the verdict on issuing a certificate, with its body.
type CertificateIssued struct {
	Saved       bool   `json:"saved" doc:"The certificate reads back with its request."`
	Certificate Base64 `json:"certificate" doc:"The DER."`
	CertificateRenewed
}

// Unproven returns "" if the certificate reads back with its request.
func (r CertificateIssued) Unproven() string {
	return unshown(r.Saved && len(r.Chain) > 0 && len(r.Certificate) > 0, "the certificate")
}

// EnrollCertificatesRequest requests the enrollment of certificates.
type EnrollCertificatesRequest struct {
	Certificates []DER   `json:"certificates" names:"certificate" items:"1..64" limit:"1..65536" doc:"All are enrolled, or none."`
	RoleIDs      []HexID `json:"roleIds,omitzero" names:"role" items:"0..256" doc:"Roles of the principals that this makes; left out, none."`
}

// EnrolledPrincipal is a transport principal with its certificates.
type EnrolledPrincipal struct {
	Principal
	Created      bool          `json:"created" doc:"The enrolment made the principal."`
	Certificates []Certificate `json:"certificates"`
}

// CertificatesEnrolled is the verdict on an enrolment.
type CertificatesEnrolled struct {
	Saved      bool                `json:"saved" doc:"Every certificate reads back as its principal's."`
	Count      int                 `json:"count" doc:"Of principals."`
	Principals []EnrolledPrincipal `json:"principals"`
	Verdict
}

// Unproven returns "" if the principals read back with their certificates.
func (r CertificatesEnrolled) Unproven() string {
	return unshown(r.Saved && len(r.Principals) > 0, "the principals")
}

// ResetTransportPrincipalRequest names a transport principal.
type ResetTransportPrincipalRequest struct {
	PrincipalID HexID `json:"principalId" names:"principal" doc:"16 hexadecimal digits, the id of the principal."`
}

// TransportPrincipalReset is the verdict on a reset.
type TransportPrincipalReset struct {
	Reset               bool      `json:"reset" doc:"No certificate of the principal reads back."`
	CertificatesRemoved int       `json:"certificatesRemoved" doc:"How many there were before and are no longer."`
	Principal           Principal `json:"principal"`
	Verdict
}

// Unproven returns "" if the principal's certificates are gone.
func (r TransportPrincipalReset) Unproven() string {
	return ungone(r.Reset, "every certificate of the principal")
}
