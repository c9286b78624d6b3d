package keyserver

import "time"

// CertificateStatus is the status word of a stored certificate.
type CertificateStatus int

// The states of the contract's statusLabel.
const (
	StatusCA            CertificateStatus = 1
	StatusRegular       CertificateStatus = 2
	StatusSavedRequest  CertificateStatus = 3
	StatusTrustedServer CertificateStatus = 4
	StatusExpired       CertificateStatus = 5
)

// Label returns the contract's word for the status.
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
}
