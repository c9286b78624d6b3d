package schema

// ExportKeyRequest requests a key that is encrypted for a transport principal.
type ExportKeyRequest struct {
	TTag        HiddenLink `json:"ttag" names:"key" doc:"Hidden link of the key."`
	SystemID    SystemID   `json:"systemId" names:"home" doc:"The key server that owns the recipient; its own."`
	PrincipalID DecimalID  `json:"principalId" names:"principal" doc:"The recipient, in decimal."`
}

// KeyRecipient is the principal that can decrypt an exported key.
type KeyRecipient struct {
	SystemID      SystemID  `json:"systemId"`
	PrincipalID   DecimalID `json:"principalId"`
	Name          string    `json:"name"`
	CertificateID Base64ID  `json:"certificateId" doc:"The certificate whose key it is encrypted for."`
}

// ExportedKey is a key that only the recipient can decrypt.
type ExportedKey struct {
	JWE       string       `json:"jwe" doc:"Compact JWE (RFC 7516) of the key's bytes, with A256GCM."`
	Algorithm string       `json:"algorithm" enum:"RSA-OAEP-256,ECDH-ES+A256KW" doc:"How the content key is wrapped."`
	Recipient KeyRecipient `json:"recipient"`
	Detail    string       `json:"detail" doc:"For people; its wording may change."`
}
