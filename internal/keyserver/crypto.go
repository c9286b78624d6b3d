package keyserver

// Bounds of what is done under keys that succeed each other.
const (
	// MaxTried is how many generations of a line a MAC is compared with, the
	// newest of those that check: each costs the hash of the whole message.
	MaxTried = 16
	// MaxBatch is how many messages one batch has, and MaxBatchMessage the longest
	// of them in bytes.
	MaxBatch        = 1000
	MaxBatchMessage = 65536
	// MaxPlain is the longest text that is encrypted, and MaxAssociated the longest
	// associated data, in bytes.
	MaxPlain      = 65536
	MaxAssociated = 4096
	// MaxCiphertext is the longest ciphertext: that of the longest text.
	MaxCiphertext = MaxPlain + CipherOverhead
	// CipherOverhead is how much longer a ciphertext is than its text.
	CipherOverhead = 1 + 8 + 12 + 16
	// MaxEncryptions is how many texts are encrypted under one key. Nonces are
	// random, 96 bits of them: NIST SP 800-38D allows twice as many.
	MaxEncryptions = 1 << 31
)

// EncryptionAlgorithm is what an AES-256 key encrypts with.
const EncryptionAlgorithm = "AES-256-GCM"

// KeyChoice names a key, or the line of keys that begins with one. Exactly one of
// the two is set.
type KeyChoice struct {
	Key  HiddenLink
	Line HiddenLink // the first key of the line
}

// Named is the hidden link that is set.
func (c KeyChoice) Named() HiddenLink {
	if c.Line != "" {
		return c.Line
	}
	return c.Key
}

// UsedKey is the key that an operation used.
type UsedKey struct {
	Link       HiddenLink
	Generation int // in its line, from 1
}

// MACRequest asks for the MAC of a message under the newest key of a line.
type MACRequest struct {
	Line    HiddenLink
	Message Message
}

// MAC is one, with the key that made it.
type MAC struct {
	UsedKey
	Sum [MACSize]byte
}

// MACCheck asks whether a MAC is that of a message.
type MACCheck struct {
	KeyChoice
	Message Message
	// MAC answers the MAC once the message is written: it may arrive behind it.
	MAC func() [MACSize]byte
}

// MACVerdict is the answer to that. The key is the one that made the MAC; where
// none did, the newest that was tried.
type MACVerdict struct {
	UsedKey
	Valid bool
}

// MACItem is one message of a batch.
type MACItem struct {
	Line HiddenLink
	Data []byte
}

// MACAnswer answers one item of a batch: a MAC, or why there is none.
type MACAnswer struct {
	MAC
	Err error
}

// Encryption asks for a text to be encrypted.
type Encryption struct {
	KeyChoice
	Plain      []byte
	Associated []byte
}

// Ciphertext is an encrypted text with the key that encrypted it.
type Ciphertext struct {
	UsedKey
	Sealed []byte // as package ciphertext lays it out
}

// Decryption asks for a text that was encrypted.
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
