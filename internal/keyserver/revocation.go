package keyserver

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sort"
	"time"
)

// RevocationMode says how revocation evidence of an issuer counts.
type RevocationMode string

// The modes (contract 16.1).
const (
	// RevocationOff looks at no evidence.
	RevocationOff RevocationMode = "off"
	// RevocationWhenAvailable refuses what evidence names, and nothing else.
	RevocationWhenAvailable RevocationMode = "when-available"
	// RevocationRequired also refuses where there is no current evidence.
	RevocationRequired RevocationMode = "required"
)

// RevocationModes lists every mode.
var RevocationModes = []RevocationMode{RevocationOff, RevocationWhenAvailable, RevocationRequired}

// RevocationPolicy is what holds for the certificates of one issuer. The zero
// value, like an issuer that none was set for, is off.
type RevocationPolicy struct {
	Mode RevocationMode
	// MaxAge is how long after its thisUpdate a CRL counts as current, in
	// whole seconds. 0 leaves that to the CRL's own nextUpdate.
	MaxAge time.Duration
}

// RevocationPolicyChange sets the policy of the issuer that has the digest.
type RevocationPolicyChange struct {
	Digest string
	Policy RevocationPolicy
}

// CRLFacts describe a stored certificate revocation list.
type CRLFacts struct {
	Digest     Digest // SHA-256 of the DER
	Number     []byte // big-endian, empty where the list has none
	ThisUpdate time.Time
	NextUpdate time.Time
	ImportedAt time.Time
	Revoked    int // certificates that it names
}

// EvidenceState says what a CRL that is held is worth at a point in time.
type EvidenceState string

// The states.
const (
	NoEvidence      EvidenceState = "none"
	CurrentEvidence EvidenceState = "current"
	StaleEvidence   EvidenceState = "stale" // past its nextUpdate or the policy's maximum age
)

// RevocationIssuer is a trusted CA as the revocation routes show it.
type RevocationIssuer struct {
	Digest string // as pki.RevocationDigest spells it
	CA     Certificate
	Policy RevocationPolicy
	CRL    *CRLFacts // nil where none was imported
	State  EvidenceState
}

// IssuerID is what changes of an issuer's policy or evidence are recorded
// under: the first 8 bytes of its digest.
func IssuerID(digest string) ID {
	var id ID
	if raw, err := hex.DecodeString(digest); err == nil {
		copy(id[:], raw)
	}
	return id
}

// serialHash is how many bytes of a serial number's SHA-256 a SerialSet keeps.
// Hashes make long and short numbers alike; 16 bytes leave no collision to be
// found, and one would refuse a certificate, never let one pass.
const serialHash = 16

// SerialSet is a set of certificate serial numbers in the form in which it is
// stored and searched: sorted hashes, one after the other.
type SerialSet []byte

// NewSerialSet returns the set of big-endian serial numbers. It is never nil.
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

// Has reports whether the set has a serial number.
func (s SerialSet) Has(serial []byte) bool {
	want := hashSerial(serial)
	i := sort.Search(s.Len(), func(i int) bool { return bytes.Compare(s.at(i), want[:]) >= 0 })
	return i < s.Len() && bytes.Equal(s.at(i), want[:])
}

// Len returns how many numbers the set has.
func (s SerialSet) Len() int { return len(s) / serialHash }

func (s SerialSet) at(i int) []byte { return s[i*serialHash : (i+1)*serialHash] }

// hashSerial leaves leading zeros out: they change the spelling, not the number.
func hashSerial(serial []byte) [serialHash]byte {
	sum := sha256.Sum256(bytes.TrimLeft(serial, "\x00"))
	return [serialHash]byte(sum[:])
}
