package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// clientLifetime is the default validity of a client certificate.
const clientLifetime = 365 * 24 * time.Hour

// Limits of certificate requests and certificates.
const (
	minRSABits = 2048
	maxRSABits = 8192                       // verification with a larger key would take seconds
	maxSubject = keyserver.MaxPrincipalName // bytes of the subject in slash form, which is the principal's name
)

// ParseRequest parses a PKCS#10 request and checks its signature, its key and its
// subject. Each error is one sentence for the user.
func ParseRequest(der []byte) (*x509.CertificateRequest, error) {
	req, err := certtext.Request(der)
	if err != nil {
		return nil, fmt.Errorf("the content %w", err)
	}
	if err := checkKey(req.PublicKey); err != nil {
		return nil, err
	}
	if err := req.CheckSignature(); err != nil {
		return nil, errors.New("the signature of the request does not match its public key")
	}
	if err := CheckSubject(SlashName(req.Subject)); err != nil {
		return nil, err
	}
	return req, nil
}

// RequestSubject returns the subject of a request in slash form. It returns "" if the subject cannot be displayed. It
// makes no other checks.
func RequestSubject(der []byte) string {
	req, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return ""
	}
	if subject := SlashName(req.Subject); CheckSubject(subject) == nil {
		return subject
	}
	return ""
}

// IssueClient signs a certificate with the subject and the key of a request. It ignores requested names and usages,
// because they are not checked. Validity 0 means a year, or until the CA expires if that is earlier.
func (ca Identity) IssueClient(req *x509.CertificateRequest, validity time.Duration, now time.Time, random io.Reader) (*x509.Certificate, error) {
	end := ca.Certificate.NotAfter
	until := earlier(now.Add(clientLifetime), end)
	if validity > 0 {
		until = now.Add(validity)
	}
	switch {
	case bytes.Equal(req.RawSubject, ca.Certificate.RawSubject):
		return nil, errors.New("the subject is the subject of the CA; use another one")
	case until.After(end):
		return nil, fmt.Errorf("the certificate would be valid longer than the CA, which expires on %s; choose a shorter validity", end.UTC().Format(time.DateOnly))
	case !now.Before(end):
		return nil, errExpiredCA
	}
	serial, err := newSerial(random)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, RawSubject: req.RawSubject, NotBefore: now.Add(-backdate), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	return sign(template, ca.Certificate, req.PublicKey, ca.Key, random)
}

// RenewClient signs a request again. notBefore and notAfter limit the validity of the old certificate. The new
// certificate is valid for the same length of time, or until the CA expires if that is earlier.
func (ca Identity) RenewClient(req *x509.CertificateRequest, notBefore, notAfter, now time.Time, random io.Reader) (*x509.Certificate, error) {
	until := earlier(now.Add(notAfter.Sub(notBefore)-backdate), ca.Certificate.NotAfter)
	if !until.After(now) {
		return nil, errExpiredCA
	}
	return ca.IssueClient(req, until.Sub(now), now, random)
}

// CheckClient rejects a certificate that cannot belong to a transport principal (contract 12.6). Each error is one
// sentence for the user. It does not check the issuer.
func CheckClient(cert *x509.Certificate, now time.Time) error {
	switch {
	case cert.BasicConstraintsValid && cert.IsCA:
		return errors.New("it is a CA certificate")
	case cert.KeyUsage&x509.KeyUsageDigitalSignature == 0:
		return errors.New("its key usage lacks digitalSignature")
	case !slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageClientAuth):
		return errors.New("its extended key usage lacks clientAuth")
	case !now.Before(cert.NotAfter):
		return fmt.Errorf("it expired on %s", cert.NotAfter.UTC().Format(time.RFC3339))
	}
	if err := CheckStrength(cert); err != nil {
		return err
	}
	return CheckSubject(SlashName(cert.Subject))
}

// brokenAlgorithms contains the signature algorithms whose signatures can be forged.
var brokenAlgorithms = []x509.SignatureAlgorithm{x509.MD2WithRSA, x509.MD5WithRSA, x509.SHA1WithRSA, x509.DSAWithSHA1, x509.ECDSAWithSHA1}

// CheckStrength rejects a certificate with a weak key or a signature over a broken hash. It is also used for CAs. Each
// error is one sentence for the user.
func CheckStrength(cert *x509.Certificate) error {
	if slices.Contains(brokenAlgorithms, cert.SignatureAlgorithm) {
		return fmt.Errorf("it is signed with %s, which can be forged; sign it with SHA-256 or a longer hash", cert.SignatureAlgorithm)
	}
	return checkKey(cert.PublicKey)
}

func checkKey(key any) error {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n < minRSABits || n > maxRSABits {
			return fmt.Errorf("an RSA key must have %d to %d bits, but this one has %d", minRSABits, maxRSABits, n)
		}
		return nil
	case *ecdsa.PublicKey:
		if n := k.Params().BitSize; n < 256 {
			return fmt.Errorf("an EC key must have at least 256 bits, but this one has %d", n)
		}
		return nil
	case ed25519.PublicKey:
		return nil
	default:
		return errors.New("the type of the public key is not supported; use RSA, EC or Ed25519")
	}
}

// CheckSubject rejects a name in slash form if it is empty or cannot be stored or displayed. Each error is one sentence
// for the user.
func CheckSubject(slash string) error {
	switch {
	case slash == "":
		return errors.New("the subject is empty")
	case len(slash) > maxSubject:
		return fmt.Errorf("the subject must be at most %d bytes long", maxSubject)
	case !keyserver.Printable(slash):
		return errors.New("the subject has a character that cannot be displayed")
	}
	return nil
}
