package schema

import "time"

// CRL describes the certificate revocation list of an issuer.
type CRL struct {
	Digest     Base64    `json:"digest" doc:"SHA-256 of the list."`
	Number     *Base64   `json:"number" doc:"Big-endian CRL number, or null where the list has none."`
	ThisUpdate time.Time `json:"thisUpdate" doc:"When the issuer made the list."`
	NextUpdate time.Time `json:"nextUpdate" doc:"When the issuer will have made the next one."`
	ImportedAt time.Time `json:"importedAt" doc:"When this key server took it."`
	Revoked    int       `json:"revoked" doc:"Certificates that the list names."`
}

// RevocationIssuer is a trusted CA with its revocation policy and its CRL.
type RevocationIssuer struct {
	Digest        IssuerDigest `json:"digest" doc:"What the policy routes name it by."`
	CertificateID Base64ID     `json:"certificateId" doc:"As GET /api/trusted-cas lists it."`
	Subject       string       `json:"subject"`
	Mode          string       `json:"mode" enum:"off,when-available,required" doc:"The policy; the request of the route that sets it says what each means."`
	MaxAgeSeconds int64        `json:"maxAgeSeconds" doc:"How long after its thisUpdate a list counts as current; 0 until its nextUpdate."`
	Evidence      string       `json:"evidence" enum:"none,current,stale" doc:"How fresh the list is now, by its nextUpdate and the policy's maximum age."`
	CRL           *CRL         `json:"crl" doc:"Null where none was imported."`
}

// RevocationIssuerList is the response of GET /api/revocation/issuers.
type RevocationIssuerList struct {
	Count   int                `json:"count"`
	Issuers []RevocationIssuer `json:"issuers"`
	Detail  string             `json:"detail" doc:"For people; its wording may change."`
}

// ByDigest is a request that only names an issuer in the path.
type ByDigest struct {
	Digest IssuerDigest `path:"digest" json:"-" names:"-" doc:"As revocationDigest of GET /api/trusted-cas shows it."`
}

// RevocationPolicy is the response of a read of a policy.
type RevocationPolicy struct {
	Digest        IssuerDigest `json:"digest"`
	Mode          string       `json:"mode" enum:"off,when-available,required" doc:"The request of the route that sets it says what each means."`
	MaxAgeSeconds int64        `json:"maxAgeSeconds" doc:"How long after its thisUpdate a list counts as current; 0 until its nextUpdate."`
	Detail        string       `json:"detail" doc:"For people; its wording may change."`
}

// SetRevocationPolicyRequest sets a policy.
type SetRevocationPolicyRequest struct {
	Digest        IssuerDigest `path:"digest" json:"-" names:"-" doc:"As revocationDigest of GET /api/trusted-cas shows it."`
	Mode          string       `json:"mode" enum:"off,when-available,required" doc:"off looks at no evidence; when-available refuses what a list names; required also refuses where there is no current list."`
	MaxAgeSeconds int64        `json:"maxAgeSeconds,omitzero" limit:"0..31622400" doc:"How long after its thisUpdate a list counts as current; 0 or left out, until its nextUpdate."`
}

// RevocationPolicySaved is the verdict on setting a policy.
type RevocationPolicySaved struct {
	Saved         bool         `json:"saved" doc:"Mode and maximum age read back."`
	Digest        IssuerDigest `json:"digest"`
	Mode          string       `json:"mode" enum:"off,when-available,required" doc:"As read back."`
	MaxAgeSeconds int64        `json:"maxAgeSeconds" doc:"As read back."`
	Verdict
}

// Unproven returns "" if the policy reads back.
func (r RevocationPolicySaved) Unproven() string { return unshown(r.Saved, "the policy") }

// ImportCRLRequest imports a CRL.
type ImportCRLRequest struct {
	CRL DER `json:"crl" names:"-" limit:"1..4194304" doc:"One complete certificate revocation list, signed by a trusted CA and not older than the one held."`
}

// CRLImported is the verdict on an import.
type CRLImported struct {
	Saved   bool               `json:"saved" doc:"The list reads back as the evidence of its issuers."`
	Count   int                `json:"count"`
	Issuers []RevocationIssuer `json:"issuers" doc:"The trusted CAs that the list speaks for."`
	Verdict
}

// Unproven returns "" if the list reads back as evidence of an issuer.
func (r CRLImported) Unproven() string {
	return unshown(r.Saved && len(r.Issuers) > 0, "the revocation list")
}
