package enginetest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// certify stores an enrolled certificate of the internal CA for a transport principal.
func (f *Fixture) certify(t testing.TB, p keyserver.Caller) {
	t.Helper()
	ctx := context.Background()
	cert := NewAgent(t, f.Prepared.CA, p.Name, f.Clock.Now(), nil).Certificate
	fatal(t, f.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		return tx.InsertCertificate(ctx, keyserver.Certificate{
			ID: keyserver.DigestOf(cert.Raw).ID(), Status: keyserver.StatusRegular, Principal: p.Principal.ID,
			Subject: pki.SlashName(cert.Subject), Issuer: pki.SlashName(cert.Issuer), IssuerDigest: pki.RevocationDigest(f.Prepared.CA.Certificate.Raw),
			KeyType: pki.KeyTypeName(cert), Serial: cert.SerialNumber.Bytes(), NotBefore: cert.NotBefore, NotAfter: cert.NotAfter, DER: cert.Raw,
		})
	}))
}

// certificateOf returns the certificate that a transport principal logs in with, or zero if it has none.
func (f *Fixture) certificateOf(t testing.TB, p keyserver.ID) keyserver.ID {
	t.Helper()
	list, err := f.Store.CertificatesOf(context.Background(), p, keyserver.MaxCertificates)
	fatal(t, err)
	for _, c := range list {
		if c.Current() {
			return c.ID
		}
	}
	return keyserver.ID{}
}

// Agent is a client certificate with its private key.
type Agent struct {
	Certificate *x509.Certificate
	Key         crypto.Signer
}

// NewAgent returns a client certificate issued by ca, valid for one year from now. change may modify the certificate
// before it is signed.
func NewAgent(t testing.TB, ca pki.Identity, commonName string, now time.Time, change func(*x509.Certificate)) Agent {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fatal(t, err)
	return NewAgentFor(t, ca, commonName, now, key, change)
}

// NewAgentFor is NewAgent for an existing key.
func NewAgentFor(t testing.TB, ca pki.Identity, commonName string, now time.Time, key crypto.Signer, change func(*x509.Certificate)) Agent {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	fatal(t, err)
	template := &x509.Certificate{
		SerialNumber: serial.Add(serial, big.NewInt(1)), Subject: pkix.Name{CommonName: commonName},
		NotBefore: now.Add(-time.Minute), NotAfter: now.AddDate(1, 0, 0), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Certificate, key.Public(), ca.Key)
	fatal(t, err)
	cert, err := x509.ParseCertificate(der)
	fatal(t, err)
	return Agent{Certificate: cert, Key: key}
}

// NewRequest returns a certificate request (PKCS#10, DER) for a key.
func NewRequest(t testing.TB, commonName string, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: commonName}}, key)
	fatal(t, err)
	return der
}

// NewCRL returns a revocation list of a CA. The list expires a week after thisUpdate.
func NewCRL(t testing.TB, ca pki.Identity, number int64, thisUpdate time.Time, change func(*x509.RevocationList), revoked ...*x509.Certificate) []byte {
	t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(number), ThisUpdate: thisUpdate, NextUpdate: thisUpdate.Add(7 * 24 * time.Hour)}
	for _, c := range revoked {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: thisUpdate})
	}
	if change != nil {
		change(list)
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, ca.Certificate, ca.Key)
	fatal(t, err)
	return der
}
