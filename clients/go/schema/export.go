package schema

// ExportKeyRequest requests a key that is encrypted for a transport principal.
type ExportKeyRequest struct {
	TTag        HiddenLink `json:"ttag" names:"key" doc:"Hidden link of the key."`
	SystemID    SystemID   `json:"systemId" names:"home" doc:"System id of the key server that owns the recipient; it must be this one."`
	PrincipalID DecimalID  `json:"principalId" names:"principal" doc:"Principal id of the recipient, in decimal."`
}

// KeyRecipient is the principal that can decrypt an exported key.
type KeyRecipient struct {
	SystemID      SystemID  `json:"systemId"`
	PrincipalID   DecimalID `json:"principalId"`
	Name          string    `json:"name"`
	CertificateID Base64ID  `json:"certificateId" doc:"Certificate whose public key encrypts the exported key."`
}

// ExportedKey is a key that only the recipient can decrypt.
type ExportedKey struct {
	JWE       string       `json:"jwe" doc:"Compact JWE (RFC 7516) with the bytes of the key, encrypted with A256GCM."`
	Algorithm string       `json:"algorithm" enum:"KeyWrapAlgorithm" doc:"Algorithm that wraps the content key."`
	Recipient KeyRecipient `json:"recipient"`
	Detail    string       `json:"detail" doc:"Text for people; the wording may change."`
}
