package keyserver

import (
	"crypto/sha256"
	"time"
)

// CertificateStatus is the status word of a stored certificate.
type CertificateStatus int

// The states of statusLabel (contract 5.3).
const (
	StatusCA            CertificateStatus = 1
	StatusRegular       CertificateStatus = 2
	StatusSavedRequest  CertificateStatus = 3
	StatusTrustedServer CertificateStatus = 4
	StatusExpired       CertificateStatus = 5
)

// Label returns the word for the status in contract 5.3.
func (s CertificateStatus) Label() string {
	switch s {
	case StatusCA:
		return "CA"
	case StatusRegular:
		return "Regular"
	case StatusSavedRequest:
		return "Saved request"
	case StatusTrustedServer:
		return "Trusted server"
	case StatusExpired:
		return "Expired"
	default:
		return ""
	}
}

// Certificate is a certificate as the key server stores it.
type Certificate struct {
	ID        ID
	Status    CertificateStatus
	Subject   string // slash-prefixed and slash-separated
	Issuer    string // likewise
	KeyType   string // for instance "EC P-384" or "RSA 3072"
	Serial    []byte // big-endian, as in the certificate
	NotBefore time.Time
	NotAfter  time.Time
	DER       []byte
	Request   []byte // the PKCS#10 request that it was issued from, nil where none is saved
	// Principal is the transport principal it is enrolled for, zero for none.
	Principal ID
	System    SystemID // that owns it
	// IssuerDigest names the CA that signed it as the revocation routes do;
	// empty where that is not known.
	IssuerDigest string
}

// Digest is the SHA-256 of a certificate's DER: what it is found by.
type Digest [sha256.Size]byte

// DigestOf returns the digest of a DER certificate.
func DigestOf(der []byte) Digest { return sha256.Sum256(der) }

// ID returns the id that a stored certificate has: the digest's first 8 bytes.
func (d Digest) ID() ID { return ID(d[:len(ID{})]) }

// Current reports whether the certificate stands for its holder, as opposed
// to one that another has replaced. Its dates are not part of it.
func (c Certificate) Current() bool {
	return c.Status == StatusRegular || c.Status == StatusSavedRequest || c.Status == StatusTrustedServer
}

// ValidAt reports whether t is within the certificate's dates.
func (c Certificate) ValidAt(t time.Time) bool {
	return !t.Before(c.NotBefore) && t.Before(c.NotAfter)
}

// MaxCertificates is how many certificates one answer holds at most: there is
// no window, so a wider search is refused (contract 12.2).
const MaxCertificates = 1024

// CertificateLookup says which certificates to find; exactly one field is set.
type CertificateLookup struct {
	// Digest finds the one certificate with that body.
	Digest *Digest
	// Pattern finds by subject; % stands for any text, everything else for itself.
	Pattern string
	// TransportSubject finds the enrolled certificates with exactly that subject.
	TransportSubject string
	// Principal finds the certificates enrolled for a transport principal.
	Principal ID
}

// CertificateRequest asks for a certificate.
type CertificateRequest struct {
	Request      []byte // PKCS#10, DER
	ValidityDays int    // 0 for what the key server gives by itself
}

// Issued is a new certificate with the CA certificate that signed it.
type Issued struct {
	Certificate Certificate
	Issuer      []byte // DER
}

// Enrolment asks for certificates to be enrolled, all or none.
type Enrolment struct {
	Certificates [][]byte // DER
	// Roles are those of the principals that the enrolment makes. A principal
	// that is there already keeps its own.
	Roles []ID
}

// Enrolled is one certificate after its enrolment.
type Enrolled struct {
	Principal ID
	Created   bool // the enrolment made the principal
}

// TransportReset is what a reset took away.
type TransportReset struct {
	Certificates int
	Sessions     int
}
