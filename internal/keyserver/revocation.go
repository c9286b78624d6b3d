package keyserver

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sort"
	"time"
)

// RevocationMode says how the revocation evidence of an issuer, which is its CRL, is used.
type RevocationMode string

// The modes (contract 16.1).
const (
	// RevocationOff ignores evidence.
	RevocationOff RevocationMode = "off"
	// RevocationWhenAvailable refuses only certificates that evidence lists as revoked.
	RevocationWhenAvailable RevocationMode = "when-available"
	// RevocationRequired also refuses if there is no current evidence.
	RevocationRequired RevocationMode = "required"
)

// RevocationModes lists every mode.
var RevocationModes = []RevocationMode{RevocationOff, RevocationWhenAvailable, RevocationRequired}

// RevocationPolicy applies to the certificates of one issuer. The zero value is off,
// which also applies to an issuer without a policy.
type RevocationPolicy struct {
	Mode RevocationMode
	// MaxAge is the time after thisUpdate in which a CRL is current, in whole seconds. If
	// 0, the CRL's nextUpdate decides.
	MaxAge time.Duration
}

// RevocationPolicyChange sets the policy of the issuer with the digest.
type RevocationPolicyChange struct {
	Digest string
	Policy RevocationPolicy
}

// CRLFacts describe a stored certificate revocation list.
type CRLFacts struct {
	Digest     Digest // SHA-256 of the DER
	Number     []byte // big-endian, empty if the CRL has none
	ThisUpdate time.Time
	NextUpdate time.Time
	ImportedAt time.Time
	Revoked    int // number of certificates that it lists
}

// EvidenceState is the state of the stored CRL at a time.
type EvidenceState string

// The states.
const (
	NoEvidence      EvidenceState = "none"
	CurrentEvidence EvidenceState = "current"
	StaleEvidence   EvidenceState = "stale" // past its nextUpdate or the policy's maximum age
)

// RevocationIssuer is a trusted CA with its policy and evidence.
type RevocationIssuer struct {
	Digest string // as pki.RevocationDigest formats it
	CA     Certificate
	Policy RevocationPolicy
	CRL    *CRLFacts // nil if none was imported
	State  EvidenceState
}

// IssuerID returns the id of the issuer in the change feed: the first 8 bytes of its
// digest.
func IssuerID(digest string) ID {
	var id ID
	if raw, err := hex.DecodeString(digest); err == nil {
		copy(id[:], raw)
	}
	return id
}

// serialHash is the number of bytes that a SerialSet stores of a serial number's SHA-256. All hashes have this length.
// With 16 bytes, collisions are infeasible. A collision would refuse a valid certificate, not accept a revoked one.
const serialHash = 16

// SerialSet is a set of certificate serial numbers in the form that is stored and
// searched: concatenated, sorted hashes.
type SerialSet []byte

// NewSerialSet returns the set of the big-endian serial numbers. It is never nil.
func NewSerialSet(serials [][]byte) SerialSet {
	hashes := make([][serialHash]byte, len(serials))
	for i, s := range serials {
		hashes[i] = hashSerial(s)
	}
	slices.SortFunc(hashes, func(a, b [serialHash]byte) int { return bytes.Compare(a[:], b[:]) })
	set := make(SerialSet, 0, len(hashes)*serialHash)
	for _, h := range slices.Compact(hashes) {
		set = append(set, h[:]...)
	}
	return set
}

// Has reports whether the set contains a serial number.
func (s SerialSet) Has(serial []byte) bool {
	want := hashSerial(serial)
	i := sort.Search(s.Len(), func(i int) bool { return bytes.Compare(s.at(i), want[:]) >= 0 })
	return i < s.Len() && bytes.Equal(s.at(i), want[:])
}

// Len returns the number of serial numbers.
func (s SerialSet) Len() int { return len(s) / serialHash }

func (s SerialSet) at(i int) []byte { return s[i*serialHash : (i+1)*serialHash] }

// hashSerial ignores leading zeros: they do not change the number.
func hashSerial(serial []byte) [serialHash]byte {
	sum := sha256.Sum256(bytes.TrimLeft(serial, "\x00"))
	return [serialHash]byte(sum[:])
}
