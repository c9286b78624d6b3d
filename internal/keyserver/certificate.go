package keyserver

import (
	"crypto/sha256"
	"time"
)

// CertificateStatus is the status word of a stored certificate.
type CertificateStatus int

// The values of the status word. Contract 5.3 has their labels.
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
	Issuer    string // slash-prefixed and slash-separated
	KeyType   string // for instance "EC P-384" or "RSA 3072"
	Serial    []byte // big-endian, as in the certificate
	NotBefore time.Time
	NotAfter  time.Time
	DER       []byte
	Request   []byte // the PKCS#10 request that it was issued from, nil if none is saved
	// Principal is the transport principal for which it is enrolled, zero for none.
	Principal ID
	System    SystemID // the owner of Principal
	// IssuerDigest identifies the CA that signed it, in the format of the revocation
	// routes; empty if unknown.
	IssuerDigest string
}

// Digest is the SHA-256 of a certificate's DER. It identifies the certificate in lookups.
type Digest [sha256.Size]byte

// DigestOf returns the digest of a DER certificate.
func DigestOf(der []byte) Digest { return sha256.Sum256(der) }

// ID returns the id of the stored certificate: the first 8 bytes of the digest.
func (d Digest) ID() ID { return ID(d[:len(ID{})]) }

// Current reports whether the certificate has not been replaced by another. It ignores
// the validity dates.
func (c Certificate) Current() bool {
	return c.Status == StatusRegular || c.Status == StatusSavedRequest || c.Status == StatusTrustedServer
}

// ValidAt reports whether t is within the certificate's dates.
func (c Certificate) ValidAt(t time.Time) bool {
	return !t.Before(c.NotBefore) && t.Before(c.NotAfter)
}

// MaxCertificates is the maximum number of certificates in one result. A search has no pages, so the key server refuses
// a search that matches more (contract 12.2).
const MaxCertificates = 1024

// CertificateLookup selects certificates; exactly one field is set.
type CertificateLookup struct {
	// Digest selects the certificate with that digest.
	Digest *Digest
	// Pattern selects by subject; % matches any text, and other characters match
	// themselves.
	Pattern string
	// TransportSubject selects the enrolled certificates with exactly that subject.
	TransportSubject string
	// Principal selects the certificates enrolled for a transport principal.
	Principal ID
}

// CertificateRequest is a request to issue a certificate.
type CertificateRequest struct {
	Request      []byte // PKCS#10, DER
	ValidityDays int    // 0 for the default of the key server
}

// Issued is a new certificate with the CA certificate that signed it.
type Issued struct {
	Certificate Certificate
	Issuer      []byte // DER
}

// Enrolment is a request to enrol certificates, all or none.
type Enrolment struct {
	Certificates [][]byte // DER
	// Roles are given to principals that the enrolment creates. An existing principal keeps its own roles.
	Roles []ID
}

// Enrolled is one certificate after its enrolment.
type Enrolled struct {
	Principal ID
	Created   bool // the enrolment created the principal
}

// TransportReset counts the objects that a reset removed.
type TransportReset struct {
	Certificates int
	Sessions     int
}
