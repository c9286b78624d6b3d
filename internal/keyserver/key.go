package keyserver

import (
	"fmt"
	"io"
	"time"
)

// Algorithm is the algorithm that a key is for.
type Algorithm string

// The algorithms that a key can be created for.
const (
	HMACSHA384 Algorithm = "HMAC-SHA384"
	AES256     Algorithm = "AES-256"
)

// AlgorithmInfo has the properties of an algorithm that metadata shows.
type AlgorithmInfo struct {
	Number   int // the numeric identifier, algid
	MintLen  int // length of a minted key in bytes
	MinLen   int // minimum length of an imported key
	MaxLen   int // maximum length of an imported key
	IVLength int // length of an initialization vector in bytes, 0 for none
}

// Algorithms is the catalogue of algorithms. Never change a Number.
var Algorithms = map[Algorithm]AlgorithmInfo{
	HMACSHA384: {Number: 1, MintLen: 48, MinLen: 1, MaxLen: 1024},
	AES256:     {Number: 2, MintLen: 32, MinLen: 32, MaxLen: 32, IVLength: 12},
}

// NewKey is a request for a key. If Material is nil, the bytes come from the system's random source; otherwise Material
// is imported.
type NewKey struct {
	Algorithm Algorithm
	Material  []byte
	// Path is optional. It lies under a templated directory whose template gives the key
	// its first ACL entries.
	Path string
	// Sealed makes the key not exportable, permanently.
	Sealed bool
}

// String names the algorithm and hides the material.
func (n NewKey) String() string { return "new " + string(n.Algorithm) + " key" }

// Format hides the material from every formatting verb.
func (n NewKey) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, n.String()) }

// KeyMetadata is everything about a key except its bytes.
type KeyMetadata struct {
	Link      HiddenLink
	Algorithm Algorithm
	KeyBytes  int
	// Directory is the templated directory under which a key was minted.
	Directory string
	// Life and the following fields are zero for the key of a peer that does not send
	// them.
	Life       KeyLife
	CreatedAt  time.Time
	Uses       int64
	LastUsedAt time.Time // zero for never
	Rotation   KeyRotation
}

// Grant is the positive result of AuthorizeKey.
type Grant struct {
	System SystemID // the owner of the key
	// FilenameAudited reports that the file name is part of the audit row.
	FilenameAudited bool
}

// Use is a request to use a key. Filename is optional and states the purpose.
type Use struct {
	Link     HiddenLink
	Filename string
}

// MACSize is the length of an HMAC-SHA384 in bytes.
const MACSize = 48

// MaxMessage is the longest message of an HMAC in bytes (contract 7.3).
const MaxMessage = 16777216

// Message is the text of an HMAC as a stream, so that it is never completely in memory. WriteTo may fail with a fault
// when it finds that the text is malformed. The caller must then discard the partial result.
type Message = io.WriterTo

// HMACRequest is a request for the HMAC of a message under a key.
type HMACRequest struct {
	Link    HiddenLink
	Message Message
}
