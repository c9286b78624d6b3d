package schema

// TrustedCA is a row of the list of trusted CAs.
type TrustedCA struct {
	Certificate
	RevocationDigest *string `json:"revocationDigest" doc:"SHA-256 of the DER in upper-case hexadecimal (SHA-384 for EC keys of 384 bits or more); null if the stored body cannot be parsed."`
}

// TrustedCAsQuery selects the details of each CA.
type TrustedCAsQuery struct {
	IncludeBodies bool `query:"includeBodies" doc:"Also return the DER of each certificate."`
}

// TrustedCAList is the response of GET /api/trusted-cas.
type TrustedCAList struct {
	Count      int         `json:"count"`
	TrustedCAs []TrustedCA `json:"trustedCAs"`
}

// AddTrustedCARequest names one CA certificate.
type AddTrustedCARequest struct {
	Certificate Base64 `json:"certificate" limit:"1..65536" doc:"One X.509 CA certificate in DER; not PEM, not a bundle."`
}

// TrustedCAAdded is the result of adding a CA.
type TrustedCAAdded struct {
	Saved             bool         `json:"saved" doc:"True if the second read of the list contains the certificate."`
	MatchedBy         string       `json:"matchedBy,omitzero" enum:"TrustedCAMatch" doc:"Evidence, strongest first; absent if there is none."`
	WasAlreadyPresent bool         `json:"wasAlreadyPresent" doc:"True if the list contained the certificate before."`
	ListCountBefore   int          `json:"listCountBefore" doc:"Number of rows before the write."`
	ListCountAfter    int          `json:"listCountAfter" doc:"Number of rows in the second read."`
	AppearedCount     int          `json:"appearedCount" doc:"Number of rows in the second read that the first read did not have."`
	TrustedCA         *Certificate `json:"trustedCA" doc:"Row from the second read; null if there is none."`
	EchoedCount       int          `json:"echoedCount" doc:"Number of objects that the key server echoed. This is information, not evidence."`
	Verdict
}

// MissingEvidence returns "" if the second read shows the certificate with an id.
func (r TrustedCAAdded) MissingEvidence() string {
	return notShown(r.Saved && r.TrustedCA != nil && r.TrustedCA.CertificateID != nil, "the certificate")
}

// RemoveTrustedCARequest names a row of the list of trusted CAs.
type RemoveTrustedCARequest struct {
	CertificateID Base64ID `json:"certificateId" names:"trustedCa" doc:"Certificate id from GET /api/trusted-cas."`
}

// TrustedCARemoved is the result of removing a CA.
type TrustedCARemoved struct {
	Gone            bool        `json:"gone" doc:"True if the second read no longer shows the CA."`
	CertificateID   Base64ID    `json:"certificateId"`
	ListCountBefore int         `json:"listCountBefore" doc:"Number of rows before the removal."`
	ListCountAfter  int         `json:"listCountAfter" doc:"Number of rows in the second read."`
	EchoedObjects   *int        `json:"echoedObjects" doc:"Number of objects that the key server echoed. This is information, not evidence."`
	TrustedCA       Certificate `json:"trustedCA" doc:"Row before the removal."`
	Verdict
}

// MissingEvidence returns "" if the second read no longer shows the CA.
func (r TrustedCARemoved) MissingEvidence() string { return notDeleted(r.Gone, "the CA") }
