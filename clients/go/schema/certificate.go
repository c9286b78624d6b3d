package schema

import "time"

// Certificate is a certificate as the key server stores it. Fields that the
// key server does not know are null.
type Certificate struct {
	CertificateID  *Base64ID  `json:"certificateId" doc:"Canonical base64 of 8 bytes, as in requests about trusted CAs."`
	ClassName      *string    `json:"className" doc:"Class of the object in the key server."`
	Subject        *string    `json:"subject" doc:"Complete stored name in slash form, for instance /C=DE/CN=agent."`
	Issuer         *string    `json:"issuer"`
	PublicKeyType  *string    `json:"publicKeyType"`
	SerialNumber   *Base64    `json:"serialNumber" doc:"Big-endian serial number."`
	CertHash       *Base64    `json:"certHash" doc:"SHA-256 of the DER."`
	EffectiveDate  *time.Time `json:"effectiveDate" doc:"Start of the validity (notBefore)."`
	ExpirationDate *time.Time `json:"expirationDate" doc:"End of the validity (notAfter)."`
	Status         *int       `json:"status" doc:"Status number; it is not an error: 1 CA, 2 Regular, 3 Saved request, 4 Trusted server, 5 Expired."`
	StatusLabel    *string    `json:"statusLabel" enum:"CertificateStatus" doc:"Name of that number."`
	Certificate    *Base64    `json:"certificate,omitzero" doc:"DER; present if bodies were requested."`
	Request        *Base64    `json:"request,omitzero" doc:"Stored certificate request; present if bodies were requested."`
}

// CertificatesRequest finds certificates by subject.
type CertificatesRequest struct {
	Subject       string `json:"subject" limit:"1..1024" doc:"Subject in slash form, for instance /C=DE/CN=agent."`
	IncludeBodies bool   `json:"includeBodies,omitzero" doc:"Also return the DER and the saved request of each certificate."`
}

// CertificatesFound is the response of a lookup.
type CertificatesFound struct {
	Lookup         string        `json:"lookup" enum:"CertificateLookup" doc:"Kind of the search."`
	SystemID       *SystemID     `json:"systemId,omitzero" doc:"System id of the key server that owns the transport principal of the certificates."`
	PrincipalID    *DecimalID    `json:"principalId,omitzero" doc:"Id of that principal, in decimal."`
	Subject        string        `json:"subject,omitzero" doc:"Requested subject."`
	Count          int           `json:"count"`
	BodiesIncluded bool          `json:"bodiesIncluded" doc:"True if the DER and the saved request of each certificate were requested."`
	Certificates   []Certificate `json:"certificates"`
	Detail         string        `json:"detail" doc:"Text for people; the wording may change."`
}

// WildcardEquivalent is a broader search. The key server does not run it by itself.
type WildcardEquivalent struct {
	Path    string `json:"path" doc:"Route of that search."`
	Subject string `json:"subject" doc:"Requested subject with the wildcard at its end."`
}

// TransportCertificates is the response of a lookup by transport principal.
type TransportCertificates struct {
	CertificatesFound
	Matched            string             `json:"matched" doc:"Always: byte-exact, NO WILDCARD."`
	WildcardEquivalent WildcardEquivalent `json:"wildcardEquivalent" doc:"Search that would match with a wildcard."`
}

// IssueCertificateRequest requests a certificate.
type IssueCertificateRequest struct {
	Request DER `json:"request" names:"-" limit:"1..65536" doc:"One PKCS#10 request. The key server uses only its subject and its key."`
	// ValidityDays is nil if the key server chooses.
	ValidityDays *int `json:"validityDays,omitzero" limit:"1..3650" doc:"Validity in days; default one year."`
}

// RenewCertificateRequest names a certificate by its body.
type RenewCertificateRequest struct {
	Certificate DER `json:"certificate" names:"certificate" limit:"1..65536" doc:"Certificate to replace."`
}

// CertificateRenewed is the result of issuing a certificate.
type CertificateRenewed struct {
	Chain              Base64 `json:"chain" doc:"PKCS#7 with the certificate and its issuer, for instance for openssl pkcs7 -inform DER; empty if the second read shows no certificate."`
	CertificateID      HexID  `json:"certificateId" doc:"Digest id: the first 8 bytes of the SHA-256 of the DER, in hexadecimal."`
	CertificateIDBytes int    `json:"certificateIdBytes,omitzero" doc:"Length of the digest id in bytes."`
	Verdict
}

// MissingEvidence returns "" if the second read shows the certificate.
func (r CertificateRenewed) MissingEvidence() string {
	return notShown(len(r.Chain) > 0, "the certificate")
}

// CertificateIssued is the result of issuing a certificate, with its body.
type CertificateIssued struct {
	Saved       bool   `json:"saved" doc:"True if the second read shows the certificate with its request."`
	Certificate Base64 `json:"certificate" doc:"Certificate in DER."`
	CertificateRenewed
}

// MissingEvidence returns "" if the second read shows the certificate with its request.
func (r CertificateIssued) MissingEvidence() string {
	return notShown(r.Saved && len(r.Chain) > 0 && len(r.Certificate) > 0, "the certificate")
}

// EnrollCertificatesRequest requests the enrollment of certificates.
type EnrollCertificatesRequest struct {
	Certificates []DER   `json:"certificates" names:"certificate" items:"1..64" limit:"1..65536" doc:"Certificates to enrol. The key server enrols all of them or none."`
	RoleIDs      []HexID `json:"roleIds,omitzero" names:"role" items:"0..256" doc:"Roles of the created principals; default none."`
}

// EnrolledPrincipal is a transport principal with its certificates.
type EnrolledPrincipal struct {
	Principal
	Created      bool          `json:"created" doc:"True if the enrolment created the principal."`
	Certificates []Certificate `json:"certificates"`
}

// CertificatesEnrolled is the result of an enrolment.
type CertificatesEnrolled struct {
	Saved      bool                `json:"saved" doc:"True if the second read shows each certificate at its principal."`
	Count      int                 `json:"count" doc:"Number of principals."`
	Principals []EnrolledPrincipal `json:"principals"`
	Verdict
}

// MissingEvidence returns "" if the second read shows the principals with their certificates.
func (r CertificatesEnrolled) MissingEvidence() string {
	return notShown(r.Saved && len(r.Principals) > 0, "the principals")
}

// ResetTransportPrincipalRequest names a transport principal.
type ResetTransportPrincipalRequest struct {
	PrincipalID HexID `json:"principalId" names:"principal" doc:"Id of the principal, 16 hexadecimal digits."`
}

// TransportPrincipalReset is the result of a reset.
type TransportPrincipalReset struct {
	Reset               bool      `json:"reset" doc:"True if the second read shows no certificate of the principal."`
	CertificatesRemoved int       `json:"certificatesRemoved" doc:"Number of removed certificates."`
	Principal           Principal `json:"principal"`
	Verdict
}

// MissingEvidence returns "" if the second read no longer shows the principal's certificates.
func (r TransportPrincipalReset) MissingEvidence() string {
	return notDeleted(r.Reset, "every certificate of the principal")
}
