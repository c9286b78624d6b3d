package schema

// TrustedCA is a row of the list of trusted CAs.
type TrustedCA struct {
	Certificate
	RevocationDigest *string `json:"revocationDigest" doc:"Upper-case hexadecimal SHA-256 of the DER (SHA-384 for EC keys of 384 bits and more); null when the stored body does not parse."`
}

// TrustedCAsQuery selects the details of each CA.
type TrustedCAsQuery struct {
	IncludeBodies bool `query:"includeBodies" doc:"Also answer each certificate's DER."`
}

// TrustedCAList is the response of GET /api/trusted-cas.
type TrustedCAList struct {
	Count      int         `json:"count"`
	TrustedCAs []TrustedCA `json:"trustedCAs"`
}

// AddTrustedCARequest names one CA certificate.
type AddTrustedCARequest struct {
	Certificate Base64 `json:"certificate" limit:"1..65536" doc:"One DER X.509 CA certificate; not PEM, not a bundle."`
}

// TrustedCAAdded is the verdict on adding a CA.
type TrustedCAAdded struct {
	Saved             bool         `json:"saved" doc:"A fresh read of the list contains the certificate."`
	MatchedBy         string       `json:"matchedBy,omitzero" enum:"certificate-body,echoed-id,sole-new-entry" doc:"The evidence, strongest first; absent where there is none."`
	WasAlreadyPresent bool         `json:"wasAlreadyPresent" doc:"The list had the certificate before."`
	ListCountBefore   int          `json:"listCountBefore" doc:"Rows before the write."`
	ListCountAfter    int          `json:"listCountAfter" doc:"Rows of the fresh read."`
	AppearedCount     int          `json:"appearedCount" doc:"Rows that the fresh read has and the earlier one had not."`
	TrustedCA         *Certificate `json:"trustedCA" doc:"The row as read back; null where there is none."`
	EchoedCount       int          `json:"echoedCount" doc:"Objects that the key server echoed: information, not evidence."`
	Verdict
}

// Unproven returns "" if the certificate reads back under an id.
func (r TrustedCAAdded) Unproven() string {
	return unshown(r.Saved && r.TrustedCA != nil && r.TrustedCA.CertificateID != nil, "the certificate")
}

// RemoveTrustedCARequest names a row of the list of trusted CAs.
type RemoveTrustedCARequest struct {
	CertificateID Base64ID `json:"certificateId" names:"trustedCa" doc:"As GET /api/trusted-cas lists it."`
}

// TrustedCARemoved is the verdict on removing a CA.
type TrustedCARemoved struct {
	Gone            bool        `json:"gone" doc:"A fresh read no longer lists the CA."`
	CertificateID   Base64ID    `json:"certificateId"`
	ListCountBefore int         `json:"listCountBefore" doc:"Rows before the removal."`
	ListCountAfter  int         `json:"listCountAfter" doc:"Rows of the fresh read."`
	EchoedObjects   *int        `json:"echoedObjects" doc:"Objects that the key server echoed: information, not evidence."`
	TrustedCA       Certificate `json:"trustedCA" doc:"The row as it stood before the removal."`
	Verdict
}

// Unproven returns "" if the CA is gone.
func (r TrustedCARemoved) Unproven() string { return ungone(r.Gone, "the CA") }
