package schema

// MACRequest requests an HMAC-SHA384 under the newest key of a key lineage.
type MACRequest struct {
	Lineage HiddenLink `json:"lineage" names:"key" doc:"Hidden link of the first key of the lineage. The key server uses the newest enabled key."`
	Data    Base64     `json:"data" limit:"0..16777216" doc:"Message; the empty string is the empty message."`
}

// MACResponse is the MAC and the key that computed it.
type MACResponse struct {
	Algorithm  string     `json:"algorithm" const:"HMAC-SHA384"`
	MAC        Base64     `json:"mac" doc:"48 bytes."`
	MACBytes   int        `json:"macBytes" const:"48" doc:"Length of mac in bytes."`
	TTag       HiddenLink `json:"ttag" doc:"Hidden link of the key that was used."`
	Generation int        `json:"generation" doc:"Number of the key within its lineage, from 1."`
}

// VerifyMACRequest asks whether a MAC is that of a message.
type VerifyMACRequest struct {
	TTag    *HiddenLink `json:"ttag,omitzero" names:"key" doc:"Hidden link of the key. Send either this or lineage."`
	Lineage *HiddenLink `json:"lineage,omitzero" example:"-" names:"key" doc:"Hidden link of the first key of a lineage. The key server tries the 16 newest keys of the lineage that may verify."`
	MAC     Base64      `json:"mac" limit:"48..48" doc:"MAC of 48 bytes; a truncated MAC is refused."`
	Data    Base64      `json:"data" limit:"0..16777216" doc:"Message; the empty string is the empty message."`
}

// VerifyMACResponse is the result of verifying a MAC.
type VerifyMACResponse struct {
	Valid      bool       `json:"valid" doc:"True if one of the tried keys produces this MAC for the message."`
	TTag       HiddenLink `json:"ttag" doc:"Hidden link of the key that made the MAC; if the MAC is not valid, of the newest key that was tried."`
	Generation int        `json:"generation" doc:"Number of the key within its lineage, from 1."`
}

// MACBatchRequest requests the MACs of many messages.
type MACBatchRequest struct {
	Items []MACItem `json:"items" items:"1..1000"`
}

// MACItem is one message of a batch.
type MACItem struct {
	Lineage HiddenLink `json:"lineage" names:"key" doc:"Hidden link of the first key of the lineage. Batches are not forwarded to peers."`
	Data    Base64     `json:"data" limit:"0..65536" doc:"Message; the empty string is the empty message."`
}

// MACBatchResponse has the result of each item, in the same order.
type MACBatchResponse struct {
	Items []MACItemResponse `json:"items" doc:"Results in the order of the request. Each has either a MAC or a code."`
}

// MACItemResponse is the result of one item.
type MACItemResponse struct {
	Algorithm  *string    `json:"algorithm,omitzero" const:"HMAC-SHA384"`
	MAC        Base64     `json:"mac,omitzero" doc:"48 bytes."`
	MACBytes   *int       `json:"macBytes,omitzero" const:"48" doc:"Length of mac in bytes."`
	TTag       HiddenLink `json:"ttag,omitzero" doc:"Hidden link of the key that was used."`
	Generation *int       `json:"generation,omitzero" doc:"Number of the key within its lineage, from 1."`
	ItemFailure
}

// VerifyMACBatchRequest requests the verification of many MACs.
type VerifyMACBatchRequest struct {
	Items []VerifyMACItem `json:"items" items:"1..1000"`
}

// VerifyMACItem is one MAC of a batch, with its message.
type VerifyMACItem struct {
	TTag    *HiddenLink `json:"ttag,omitzero" names:"key" doc:"Hidden link of the key. Send either this or lineage. Batches are not forwarded to peers."`
	Lineage *HiddenLink `json:"lineage,omitzero" example:"-" names:"key" doc:"Hidden link of the first key of a lineage. The key server tries the 16 newest keys of the lineage whose state allows verification."`
	MAC     Base64      `json:"mac" limit:"48..48" doc:"MAC of 48 bytes; shorter MACs are rejected."`
	Data    Base64      `json:"data" limit:"0..65536" doc:"Message; the empty string is the empty message."`
}

// VerifyMACBatchResponse has the result of each item, in the same order.
type VerifyMACBatchResponse struct {
	Items []VerifyMACItemResponse `json:"items" doc:"Results in the order of the request. Each has either valid or a code."`
}

// VerifyMACItemResponse is the result of one item.
type VerifyMACItemResponse struct {
	Valid      *bool      `json:"valid,omitzero" doc:"True if one of the tried keys produces this MAC for the message."`
	TTag       HiddenLink `json:"ttag,omitzero" doc:"Hidden link of the key that computed the MAC. If the MAC is invalid: hidden link of the newest key that was tried."`
	Generation *int       `json:"generation,omitzero" doc:"Number of the key within its lineage, from 1."`
	ItemFailure
}

// ItemFailure is the failure of one item of a batch.
type ItemFailure struct {
	Code   string `json:"code,omitzero" doc:"Error code, as for the item in a single request."`
	Detail string `json:"detail,omitzero" doc:"Text for people; the wording may change."`
}

// EncryptRequest requests the encryption of a text.
type EncryptRequest struct {
	TTag           *HiddenLink `json:"ttag,omitzero" names:"key" doc:"Hidden link of an AES-256 key. Send either this or lineage."`
	Lineage        *HiddenLink `json:"lineage,omitzero" example:"-" names:"key" doc:"Hidden link of the first key of a lineage. The key server uses the newest enabled key."`
	Data           Base64      `json:"data" limit:"0..65536" secret:"true" doc:"Plain text."`
	AssociatedData *Base64     `json:"associatedData,omitzero" limit:"0..4096" doc:"Data that the ciphertext is bound to, but does not contain. Decryption needs the same data."`
}

// EncryptResponse is the ciphertext.
type EncryptResponse struct {
	Algorithm  string     `json:"algorithm" const:"AES-256-GCM"`
	Ciphertext Base64     `json:"ciphertext" doc:"Ciphertext, 37 bytes longer than the plain text. It identifies the key that made it."`
	TTag       HiddenLink `json:"ttag" doc:"Hidden link of the key that was used."`
	Generation int        `json:"generation" doc:"Number of the key within its lineage, from 1."`
}

// DecryptRequest requests the text of a ciphertext.
type DecryptRequest struct {
	TTag           *HiddenLink `json:"ttag,omitzero" names:"key" doc:"Hidden link of the key that made the ciphertext. Send either this or lineage."`
	Lineage        *HiddenLink `json:"lineage,omitzero" example:"-" names:"key" doc:"Hidden link of the first key of the lineage of that key."`
	Ciphertext     Base64      `json:"ciphertext" limit:"1..65573" doc:"Ciphertext from POST /api/crypto/encrypt."`
	AssociatedData *Base64     `json:"associatedData,omitzero" limit:"0..4096" doc:"Same associated data as for the encryption."`
}

// DecryptResponse is the decrypted text.
type DecryptResponse struct {
	Data       Base64     `json:"data" secret:"true" doc:"Plain text."`
	TTag       HiddenLink `json:"ttag" doc:"Hidden link of the key that was used."`
	Generation int        `json:"generation" doc:"Number of the key within its lineage, from 1."`
}
