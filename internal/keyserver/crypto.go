package keyserver

// Limits of operations with keys and key lineages.
const (
	// MaxVerificationKeys is the maximum number of keys of a lineage that a MAC is compared with: the newest keys that
	// can verify. Each key costs a hash of the complete message.
	MaxVerificationKeys = 16
	// MaxBatch is the maximum number of messages in a batch, and MaxBatchMessage the maximum length of one message in
	// bytes.
	MaxBatch        = 1000
	MaxBatchMessage = 65536
	// MaxPlain is the maximum length of a plaintext, and MaxAssociated that of associated
	// data, in bytes.
	MaxPlain      = 65536
	MaxAssociated = 4096
	// MaxCiphertext is the maximum length of a ciphertext.
	MaxCiphertext = MaxPlain + CipherOverhead
	// CipherOverhead is the difference in length between a ciphertext and its plaintext.
	CipherOverhead = 1 + 8 + 12 + 16
	// MaxEncryptions is the maximum number of encryptions under one key: half of the number that NIST SP 800-38D allows
	// for random nonces of 96 bits.
	MaxEncryptions = 1 << 31
)

// EncryptionAlgorithm is the mode of encryption under AES-256 keys.
const EncryptionAlgorithm = "AES-256-GCM"

// KeyChoice names a key, or a key lineage by its first key. Exactly one field is set.
type KeyChoice struct {
	Key     HiddenLink
	Lineage HiddenLink // the first key of the lineage
}

// Named returns the hidden link that is set.
func (c KeyChoice) Named() HiddenLink {
	if c.Lineage != "" {
		return c.Lineage
	}
	return c.Key
}

// UsedKey is the key that an operation used.
type UsedKey struct {
	Link       HiddenLink
	Generation int // in its lineage, from 1
}

// MACRequest is a request for the MAC of a message under the newest key of a lineage.
type MACRequest struct {
	Lineage HiddenLink
	Message Message
}

// MAC is a MAC with the key that made it.
type MAC struct {
	UsedKey
	Sum [MACSize]byte
}

// MACCheck is a request to verify the MAC of a message.
type MACCheck struct {
	KeyChoice
	Message Message
	// MAC returns the MAC. Call it after the message was written, because the MAC may follow the message in the
	// request.
	MAC func() [MACSize]byte
}

// MACVerdict is the result of a MACCheck. UsedKey is the key that made the MAC, or the newest tried key if no tried key
// made the MAC.
type MACVerdict struct {
	UsedKey
	Valid bool
}

// MACItem is one message of a batch.
type MACItem struct {
	Lineage HiddenLink
	Data    []byte
}

// MACResult is the result of one item of a batch: a MAC or an error.
type MACResult struct {
	MAC
	Err error
}

// MACVerdictResult is the result of one item of a batch: a verdict or an error.
type MACVerdictResult struct {
	MACVerdict
	Err error
}

// Encryption is a request to encrypt a text.
type Encryption struct {
	KeyChoice
	Plain      []byte
	Associated []byte
}

// Ciphertext is an encrypted text with the key that encrypted it.
type Ciphertext struct {
	UsedKey
	Sealed []byte // in the format of package ciphertext
}

// Decryption is a request to decrypt a text.
type Decryption struct {
	KeyChoice
	Sealed     []byte
	Associated []byte
}

// Plaintext is a decrypted text with the key that decrypted it.
type Plaintext struct {
	UsedKey
	Plain []byte
}
