package schema

import "time"

// CRL describes the certificate revocation list of an issuer.
type CRL struct {
	Digest     Base64    `json:"digest" doc:"SHA-256 of the CRL."`
	Number     *Base64   `json:"number" doc:"Big-endian CRL number; null if the CRL has none."`
	ThisUpdate time.Time `json:"thisUpdate" doc:"Time when the issuer made the CRL."`
	NextUpdate time.Time `json:"nextUpdate" doc:"Time by which the issuer makes the next CRL."`
	ImportedAt time.Time `json:"importedAt" doc:"Time when this key server imported the CRL."`
	Revoked    int       `json:"revoked" doc:"Number of certificates that the CRL revokes."`
}

// RevocationIssuer is a trusted CA with its revocation policy and its CRL.
type RevocationIssuer struct {
	Digest        IssuerDigest `json:"digest" doc:"Digest that names the CA in the policy routes."`
	CertificateID Base64ID     `json:"certificateId" doc:"Certificate id from GET /api/trusted-cas."`
	Subject       string       `json:"subject"`
	Mode          string       `json:"mode" enum:"RevocationMode" doc:"Policy. PUT /api/revocation/issuers/{digest}/policy describes the modes."`
	MaxAgeSeconds int64        `json:"maxAgeSeconds" doc:"Seconds after thisUpdate for which a CRL is current; 0: until nextUpdate."`
	Evidence      string       `json:"evidence" enum:"CRLState" doc:"State of the CRL now, by nextUpdate and maxAgeSeconds."`
	CRL           *CRL         `json:"crl" doc:"Null if no CRL was imported."`
}

// RevocationIssuerList is the response of GET /api/revocation/issuers.
type RevocationIssuerList struct {
	Count   int                `json:"count"`
	Issuers []RevocationIssuer `json:"issuers"`
	Detail  string             `json:"detail" doc:"Text for people; the wording may change."`
}

// ByDigest is a request that only names an issuer in the path.
type ByDigest struct {
	Digest IssuerDigest `path:"digest" json:"-" names:"-" doc:"revocationDigest from GET /api/trusted-cas."`
}

// RevocationPolicy is the response of a read of a policy.
type RevocationPolicy struct {
	Digest        IssuerDigest `json:"digest"`
	Mode          string       `json:"mode" enum:"RevocationMode" doc:"Policy. PUT /api/revocation/issuers/{digest}/policy describes the modes."`
	MaxAgeSeconds int64        `json:"maxAgeSeconds" doc:"Seconds after thisUpdate for which a CRL is current; 0: until nextUpdate."`
	Detail        string       `json:"detail" doc:"Text for people; the wording may change."`
}

// SetRevocationPolicyRequest sets a policy.
type SetRevocationPolicyRequest struct {
	Digest        IssuerDigest `path:"digest" json:"-" names:"-" doc:"revocationDigest from GET /api/trusted-cas."`
	Mode          string       `json:"mode" enum:"RevocationMode" doc:"off: no check. when-available: refuses certificates that the CRL revokes. required: also refuses all if there is no current CRL."`
	MaxAgeSeconds int64        `json:"maxAgeSeconds,omitzero" limit:"0..31622400" doc:"Seconds after thisUpdate for which a CRL is current; 0 or omitted: until nextUpdate."`
}

// RevocationPolicySaved is the result of setting a policy.
type RevocationPolicySaved struct {
	Saved         bool         `json:"saved" doc:"True if the second read shows the mode and the maximum age."`
	Digest        IssuerDigest `json:"digest"`
	Mode          string       `json:"mode" enum:"RevocationMode" doc:"State from the second read."`
	MaxAgeSeconds int64        `json:"maxAgeSeconds" doc:"State from the second read."`
	Verdict
}

// MissingEvidence returns "" if the second read shows the policy.
func (r RevocationPolicySaved) MissingEvidence() string { return notShown(r.Saved, "the policy") }

// ImportCRLRequest imports a CRL.
type ImportCRLRequest struct {
	CRL DER `json:"crl" names:"-" limit:"1..4194304" doc:"One complete CRL, signed by a trusted CA and not older than the stored one."`
}

// CRLImported is the result of an import.
type CRLImported struct {
	Saved   bool               `json:"saved" doc:"True if the second read shows the CRL at its issuers."`
	Count   int                `json:"count"`
	Issuers []RevocationIssuer `json:"issuers" doc:"Trusted CAs that the CRL applies to."`
	Verdict
}

// MissingEvidence returns "" if the second read shows the list as evidence of an issuer.
func (r CRLImported) MissingEvidence() string {
	return notShown(r.Saved && len(r.Issuers) > 0, "the revocation list")
}
