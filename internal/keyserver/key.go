package keyserver

import (
	"fmt"
	"io"
	"time"
)

// Algorithm is the cipher a key is for.
type Algorithm string

// The algorithms a key can be minted for.
const (
	HMACSHA384 Algorithm = "HMAC-SHA384"
	AES256     Algorithm = "AES-256"
)

// AlgorithmInfo is what metadata tells about an algorithm.
type AlgorithmInfo struct {
	Number   int // the numeric identifier, algid
	MintLen  int // bytes of a minted key
	MinLen   int // bytes of an imported key, at least
	MaxLen   int // and at most
	IVLength int // bytes of an initialisation vector, 0 where there is none
}

// Algorithms is the catalogue of algorithms. Numbers are permanent.
var Algorithms = map[Algorithm]AlgorithmInfo{
	HMACSHA384: {Number: 1, MintLen: 48, MinLen: 1, MaxLen: 1024},
	AES256:     {Number: 2, MintLen: 32, MinLen: 32, MaxLen: 32, IVLength: 12},
}

// NewKey asks for a key. A nil Material mints one from the system's random
// source; anything else imports those bytes.
type NewKey struct {
	Algorithm Algorithm
	Material  []byte
	// Path, where it is not empty, lies under a templated directory whose
	// template gives the key its first entries.
	Path string
	// Sealed keeps the key from ever being exported.
	Sealed bool
}

// String names the algorithm and hides the material.
func (n NewKey) String() string { return "new " + string(n.Algorithm) + " key" }

// Format hides the material from every other verb.
func (n NewKey) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, n.String()) }

// KeyMetadata is everything about a key but its bytes.
type KeyMetadata struct {
	Link      HiddenLink
	Algorithm Algorithm
	KeyBytes  int
	// Directory is the templated directory that a minted key came under.
	Directory string
	// Life and what follows is zero of a peer's key where the peer does not tell.
	Life       KeyLife
	CreatedAt  time.Time
	Uses       int64
	LastUsedAt time.Time // zero for never
	Rotation   KeyRotation
}

// Grant is a yes to the question whether a caller may use a key.
type Grant struct {
	System SystemID // owner of the key
	// FilenameAudited says that the file name is part of the audit row.
	FilenameAudited bool
}

// Use asks whether a key may be used. The file name, where there is one, is
// what the key is wanted for.
type Use struct {
	Link     HiddenLink
	Filename string
}

// MACSize is the length of an HMAC-SHA384 in bytes.
const MACSize = 48

// MaxMessage is the longest message of an HMAC in bytes (contract 7.3).
const MaxMessage = 16777216

// Message is the text of an HMAC as a stream, so that it is never held whole.
// WriteTo may fail with a fault when the text turns out to be malformed; what
// was computed until then is discarded.
type Message = io.WriterTo

// HMACRequest asks for the HMAC of a message under a key.
type HMACRequest struct {
	Link    HiddenLink
	Message Message
}
