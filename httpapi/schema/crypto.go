package schema

// MACRequest requests an HMAC-SHA384 under the newest key of a key lineage.
type MACRequest struct {
	Lineage HiddenLink `json:"lineage" names:"key" doc:"Hidden link of the first key of the line. The newest enabled one is used."`
	Data    Base64     `json:"data" limit:"0..16777216" doc:"The message; the empty string is the empty message."`
}

// MACResponse is the MAC and the key that computed it.
type MACResponse struct {
	Algorithm  string     `json:"algorithm" enum:"HMAC-SHA384"`
	MAC        Base64     `json:"mac" doc:"48 bytes."`
	MACBytes   int        `json:"macBytes" enum:"48" doc:"Length of mac in bytes."`
	TTag       HiddenLink `json:"ttag" doc:"Hidden link of the key that was used."`
	Generation int        `json:"generation" doc:"Which key of its line that is, from 1."`
}

// VerifyMACRequest asks whether a MAC is that of a message.
type VerifyMACRequest struct {
	TTag    *HiddenLink `json:"ttag,omitzero" names:"key" doc:"Hidden link of the key. Send this or lineage."`
	Lineage *HiddenLink `json:"lineage,omitzero" example:"-" names:"key" doc:"Hidden link of the first key of a line: the 16 newest keys of it that check MACs are tried."`
	MAC     Base64      `json:"mac" limit:"48..48" doc:"48 bytes; a MAC that was cut short is refused."`
	Data    Base64      `json:"data" limit:"0..16777216" doc:"The message; the empty string is the empty message."`
}

// VerifyMACResponse is the result of verifying a MAC.
type VerifyMACResponse struct {
	Valid      bool       `json:"valid" doc:"The MAC is that of the message under a key that was tried."`
	TTag       HiddenLink `json:"ttag" doc:"Hidden link of the key that made the MAC; of a MAC that is not valid, of the newest that was tried."`
	Generation int        `json:"generation" doc:"Which key of its line that is, from 1."`
}

// MACBatchRequest requests the MACs of many messages.
type MACBatchRequest struct {
	Items []MACItem `json:"items" items:"1..1000"`
}

// MACItem is one message of a batch.
type MACItem struct {
	Lineage HiddenLink `json:"lineage" names:"key" doc:"Hidden link of the first key of the line. Batches are not forwarded to peers."`
	Data    Base64     `json:"data" limit:"0..65536" doc:"The message; the empty string is the empty message."`
}

// MACBatchResponse has the result of each item, in the same order.
type MACBatchResponse struct {
	Items []MACItemResponse `json:"items" doc:"In the order asked. Each has a MAC, or a code."`
}

// MACItemResponse is the result of one item.
type MACItemResponse struct {
	Algorithm  *string    `json:"algorithm,omitzero" enum:"HMAC-SHA384"`
	MAC        Base64     `json:"mac,omitzero" doc:"48 bytes."`
	MACBytes   *int       `json:"macBytes,omitzero" enum:"48" doc:"Length of mac in bytes."`
	TTag       HiddenLink `json:"ttag,omitzero" doc:"Hidden link of the key that was used."`
	Generation *int       `json:"generation,omitzero" doc:"Which key of its line that is, from 1."`
	Code       string     `json:"code,omitzero" doc:"Why there is no MAC: a code that POST /api/crypto/mac answers."`
	Detail     string     `json:"detail,omitzero" doc:"For people; its wording may change."`
}

// EncryptRequest requests the encryption of a text.
type EncryptRequest struct {
	TTag           *HiddenLink `json:"ttag,omitzero" names:"key" doc:"Hidden link of an AES-256 key. Send this or lineage."`
	Lineage        *HiddenLink `json:"lineage,omitzero" example:"-" names:"key" doc:"Hidden link of the first key of a line. The newest enabled one is used."`
	Data           Base64      `json:"data" limit:"0..65536" secret:"true" doc:"The text."`
	AssociatedData *Base64     `json:"associatedData,omitzero" limit:"0..4096" doc:"What the ciphertext is bound to besides; it is not in the ciphertext, and decrypting takes the same again."`
}

// EncryptResponse is the ciphertext.
type EncryptResponse struct {
	Algorithm  string     `json:"algorithm" enum:"AES-256-GCM"`
	Ciphertext Base64     `json:"ciphertext" doc:"37 bytes longer than the text. It names the key that made it."`
	TTag       HiddenLink `json:"ttag" doc:"Hidden link of the key that was used."`
	Generation int        `json:"generation" doc:"Which key of its line that is, from 1."`
}

// DecryptRequest requests the text of a ciphertext.
type DecryptRequest struct {
	TTag           *HiddenLink `json:"ttag,omitzero" names:"key" doc:"Hidden link of the key that made the ciphertext. Send this or lineage."`
	Lineage        *HiddenLink `json:"lineage,omitzero" example:"-" names:"key" doc:"Hidden link of the first key of the line of that key."`
	Ciphertext     Base64      `json:"ciphertext" limit:"1..65573" doc:"As encrypting answered it."`
	AssociatedData *Base64     `json:"associatedData,omitzero" limit:"0..4096" doc:"The same as when it was encrypted."`
}

// DecryptResponse is the decrypted text.
type DecryptResponse struct {
	Data       Base64     `json:"data" secret:"true" doc:"The text."`
	TTag       HiddenLink `json:"ttag" doc:"Hidden link of the key that was used."`
	Generation int        `json:"generation" doc:"Which key of its line that is, from 1."`
}
