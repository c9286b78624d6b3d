package schema

import "time"

// Certificate is a certificate as the key server stores it. Fields that the
// key server does not know are null.
type Certificate struct {
	CertificateID  *Base64ID  `json:"certificateId" doc:"Canonical base64 of 8 bytes, the spelling that trust routes take."`
	ClassName      *string    `json:"className"`
	Subject        *string    `json:"subject" doc:"The whole stored name, slash-prefixed and slash-separated."`
	Issuer         *string    `json:"issuer"`
	PublicKeyType  *string    `json:"publicKeyType"`
	SerialNumber   *Base64    `json:"serialNumber"`
	CertHash       *Base64    `json:"certHash" doc:"SHA-256 of the DER."`
	EffectiveDate  *time.Time `json:"effectiveDate"`
	ExpirationDate *time.Time `json:"expirationDate"`
	Status         *int       `json:"status" doc:"The status word; not an error flag."`
	StatusLabel    *string    `json:"statusLabel" enum:"CA,Regular,Saved request,Trusted server,Expired"`
	Certificate    *Base64    `json:"certificate,omitzero" doc:"The DER, where bodies were asked for."`
	Request        *Base64    `json:"request,omitzero" doc:"The stored certificate request, where bodies were asked for."`
}
