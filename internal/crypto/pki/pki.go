// Package pki creates and describes X.509 certificates: the key server's internal CA, the certificates that the CA
// issues, and the projections of stored certificates in contract 5.3. It has no state.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"slices"
	"time"
)

// Lifetimes of certificates that the key server issues for itself.
const (
	caLifetime     = 10 * 365 * 24 * time.Hour
	serverLifetime = 397 * 24 * time.Hour
	// backdate is the time between the start of a certificate's validity and its issue. It helps clients with a slow
	// clock.
	backdate = 5 * time.Minute
)

// Identity is a certificate with its private key.
type Identity struct {
	Certificate *x509.Certificate
	Key         *ecdsa.PrivateKey
}

// String returns a text without the private key.
func (id Identity) String() string { return "identity " + SlashName(id.Certificate.Subject) }

// GoString returns a text without the private key for %#v.
func (id Identity) GoString() string { return id.String() }

// NewCA creates a self-signed CA with a P-384 key.
func NewCA(commonName string, now time.Time, random io.Reader) (Identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P384(), random)
	if err != nil {
		return Identity{}, fmt.Errorf("generate the CA key: %w", err)
	}
	serial, err := newSerial(random)
	if err != nil {
		return Identity{}, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(caLifetime),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	cert, err := sign(template, template, key.Public(), key, random)
	return Identity{Certificate: cert, Key: key}, err
}

// Link returns a certificate, signed by this CA, for the name and key of another CA. Clients that trust this CA can use
// it to verify certificates of the other CA. It is valid until one of the two CAs expires.
func (id Identity) Link(to *x509.Certificate, now time.Time, random io.Reader) (*x509.Certificate, error) {
	if !now.Before(id.Certificate.NotAfter) {
		return nil, errExpiredCA
	}
	serial, err := newSerial(random)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		RawSubject:            to.RawSubject,
		SubjectKeyId:          to.SubjectKeyId,
		NotBefore:             now.Add(-backdate),
		NotAfter:              earlier(to.NotAfter, id.Certificate.NotAfter),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              to.KeyUsage,
	}
	return sign(template, id.Certificate, to.PublicKey, id.Key, random)
}

var errExpiredCA = errors.New("the CA has expired")

// IssueServer issues a certificate for both listeners: for server authentication, and for client authentication to
// peers. If key is nil, it generates a key. It fails if the CA has expired.
func (id Identity) IssueServer(commonName string, hosts []string, key *ecdsa.PrivateKey, now time.Time, random io.Reader) (Identity, error) {
	if !now.Before(id.Certificate.NotAfter) {
		return Identity{}, errExpiredCA
	}
	if key == nil {
		var err error
		if key, err = ecdsa.GenerateKey(elliptic.P256(), random); err != nil {
			return Identity{}, fmt.Errorf("generate the server key: %w", err)
		}
	}
	serial, err := newSerial(random)
	if err != nil {
		return Identity{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: commonName},
		NotBefore:    now.Add(-backdate),
		NotAfter:     earlier(now.Add(serverLifetime), id.Certificate.NotAfter),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	template.DNSNames, template.IPAddresses = splitHosts(hosts)
	cert, err := sign(template, id.Certificate, key.Public(), id.Key, random)
	return Identity{Certificate: cert, Key: key}, err
}

// Renewal reports whether issuer should issue a new server certificate at now. It returns true if another CA issued
// cert, if cert lacks a host, or if two thirds of its validity are over and a new certificate would expire later. For
// an expired issuer it returns false.
func Renewal(cert *x509.Certificate, hosts []string, issuer *x509.Certificate, now time.Time) bool {
	switch {
	case !now.Before(issuer.NotAfter):
		return false
	case cert.CheckSignatureFrom(issuer) != nil, now.Before(cert.NotBefore):
		return true
	case slices.ContainsFunc(hosts, func(h string) bool { return cert.VerifyHostname(h) != nil }):
		return true
	}
	return cert.NotAfter.Sub(now) < cert.NotAfter.Sub(cert.NotBefore)/3 && cert.NotAfter.Before(issuer.NotAfter)
}

func sign(template, parent *x509.Certificate, pub crypto.PublicKey, key *ecdsa.PrivateKey, random io.Reader) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(random, template, parent, pub, key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	return x509.ParseCertificate(der)
}

// newSerial returns a random serial number with 159 bits: it is positive and has at most 20 bytes (RFC 5280, section
// 4.1.2.2).
func newSerial(random io.Reader) (*big.Int, error) {
	b := make([]byte, 20)
	if _, err := io.ReadFull(random, b); err != nil {
		return nil, fmt.Errorf("generate a serial number: %w", err)
	}
	b[0] &= 0x7f
	b[len(b)-1] |= 1
	return new(big.Int).SetBytes(b), nil
}

func splitHosts(hosts []string) (names []string, ips []net.IP) {
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			ips = append(ips, ip)
		} else if h != "" {
			names = append(names, h)
		}
	}
	return names, ips
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// MarshalKey returns the private key in PKCS#8 format. The caller wraps it.
func (id Identity) MarshalKey() ([]byte, error) { return x509.MarshalPKCS8PrivateKey(id.Key) }

// ParseIdentity parses a DER certificate and a PKCS#8 key.
func ParseIdentity(certDER, keyDER []byte) (Identity, error) {
	cert, err := x509.ParseCertificate(certDER)
	if err != nil {
		return Identity{}, fmt.Errorf("parse the stored certificate: %w", err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(keyDER)
	if err != nil {
		return Identity{}, errors.New("parse the stored private key: it is not PKCS#8")
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return Identity{}, errors.New("parse the stored private key: it is not an ECDSA key")
	}
	return Identity{Certificate: cert, Key: key}, nil
}

// EncodePEM returns the certificate as a PEM block.
func EncodePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// RevocationDigest returns the identifier of an issuer in the routes for revocation: upper-case hex of the SHA-256 of
// its certificate, or of the SHA-384 for an EC key of 384 bits or more (contract 2.9). It is empty if der is invalid.
func RevocationDigest(der []byte) string {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return ""
	}
	if key, ok := cert.PublicKey.(*ecdsa.PublicKey); ok && key.Params().BitSize >= 384 {
		sum := sha512.Sum384(der)
		return upperHex(sum[:])
	}
	sum := sha256.Sum256(der)
	return upperHex(sum[:])
}

func upperHex(b []byte) string {
	const digits = "0123456789ABCDEF"
	out := make([]byte, hex.EncodedLen(len(b)))
	for i, c := range b {
		out[2*i], out[2*i+1] = digits[c>>4], digits[c&0xf]
	}
	return string(out)
}
