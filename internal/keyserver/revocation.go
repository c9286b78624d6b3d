package keyserver

import (
	"encoding/hex"
	"time"
)

// RevocationMode says how revocation evidence of an issuer counts.
type RevocationMode string

// The modes (DESIGN section 8).
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

// CRLFacts describe a stored certificate revocation list.
type CRLFacts struct {
	Digest     Digest // SHA-256 of the DER
	Number     []byte // big-endian, empty where the list has none
	ThisUpdate time.Time
	NextUpdate time.Time
	ImportedAt time.Time
	Revoked    int // certificates that it names
}

// RevocationIssuer is a trusted CA as the revocation routes show it.
type RevocationIssuer struct {
	Digest string // as pki.RevocationDigest spells it
	CA     Certificate
	Policy RevocationPolicy
	CRL    *CRLFacts // nil where none was imported
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
