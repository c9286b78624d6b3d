package schema

// MintKeyRequest requests a new key.
type MintKeyRequest struct {
	Algorithm string `json:"algorithm" enum:"KeyAlgorithm"`
	// Material is nil to create a random key. Empty material is refused, because it could be mistaken for nil.
	Material *Base64 `json:"material,omitzero" limit:"1..1024" secret:"true" doc:"Key bytes to import: 1 to 1024 for HMAC-SHA384, 32 for AES-256. If omitted, the key server generates them."`
	Path     *string `json:"path,omitzero" limit:"1..1024" doc:"Path of the key. The members of the ACL template of the nearest templated directory get ACL entries, in addition to the creator."`
	// Exportable is a pointer because the default is true.
	Exportable *bool `json:"exportable,omitzero" doc:"False keeps the key in the key server forever; default true."`
}

// KeyRequest names a key.
type KeyRequest struct {
	TTag HiddenLink `json:"ttag" names:"key" doc:"Hidden link of the key."`
}

// KeyMetadata is all information about a key except its bytes.
type KeyMetadata struct {
	KeyFacts
	Detail string `json:"detail,omitzero" doc:"Text for people; the wording may change."`
}

// AuthorizeKeyRequest asks whether the caller may use a key.
type AuthorizeKeyRequest struct {
	TTag     HiddenLink `json:"ttag" names:"key" doc:"Hidden link of the key."`
	Filename string     `json:"filename,omitzero" limit:"1..1024" doc:"Purpose of the key; the audit row contains it."`
}

// KeyGrant is the permission to use a key. A refusal is a 403.
type KeyGrant struct {
	Authorized      bool     `json:"authorized" const:"true"`
	SystemID        SystemID `json:"systemId" doc:"System id of the key server that owns the key."`
	FilenameAudited bool     `json:"filenameAudited" doc:"True if a filename was sent and the audit row contains it."`
	Detail          string   `json:"detail,omitzero" doc:"Text for people; the wording may change."`
}

// HMACRequest requests an HMAC-SHA384.
type HMACRequest struct {
	HiddenLink HiddenLink `json:"hiddenLink" names:"key" doc:"Hidden link of the key."`
	Data       Base64     `json:"data" limit:"0..16777216" doc:"Message; the empty string is the empty message."`
}

// HMACResponse is the MAC.
type HMACResponse struct {
	Algorithm string `json:"algorithm" const:"HMAC-SHA384"`
	MAC       Base64 `json:"mac" doc:"48 bytes."`
	MACBytes  int    `json:"macBytes" const:"48" doc:"Length of mac in bytes."`
}
