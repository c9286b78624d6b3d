package typescript

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// pair is a certificate with its chain and its key, in the format of Node.js.
type pair struct {
	Cert string `json:"cert"`
	Key  string `json:"key"`

	certificate *x509.Certificate
	private     *ecdsa.PrivateKey
}

// untrusted writes certificates to a directory, one for each reason to reject a certificate. It also returns the CA
// that the client trusts.
func untrusted(t *testing.T) (dir string, trusted []byte) {
	t.Helper()
	now := time.Now()
	authority := func(name string) *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	}
	leaf := func() *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: "a service"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature}
	}
	known, stranger := sign(t, authority("known"), nil), sign(t, authority("a stranger"), nil)
	expired, early, other := leaf(), leaf(), leaf()
	expired.NotBefore, expired.NotAfter = now.AddDate(0, -2, 0), now.AddDate(0, -1, 0)
	early.NotBefore, early.NotAfter = now.AddDate(0, 1, 0), now.AddDate(0, 2, 0)
	other.IPAddresses, other.DNSNames = nil, []string{"other.example"}
	chain := sign(t, leaf(), stranger)
	chain.Cert += stranger.Cert

	dir = t.TempDir()
	for name, p := range map[string]*pair{
		"self-signed": sign(t, leaf(), nil), "unknown-leaf": sign(t, leaf(), stranger), "unknown-chain": chain,
		"expired": sign(t, expired, known), "not-yet": sign(t, early, known), "other-name": sign(t, other, known),
	} {
		text, err := json.Marshal(p)
		rig.Must(t, err)
		rig.Must(t, os.WriteFile(filepath.Join(dir, name+".json"), text, 0o600))
	}
	return dir, []byte(known.Cert)
}

// sign creates a certificate from a template. The pair by signs it; if by is nil, it is self-signed. It is valid for a
// year unless the template sets NotAfter.
func sign(t *testing.T, template *x509.Certificate, by *pair) *pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	rig.Must(t, err)
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	rig.Must(t, err)
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().AddDate(1, 0, 0)
	}
	issuer, signer := template, key
	if by != nil {
		issuer, signer = by.certificate, by.private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), signer)
	rig.Must(t, err)
	certificate, err := x509.ParseCertificate(der)
	rig.Must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	rig.Must(t, err)
	return &pair{
		Cert:        string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		Key:         string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
		certificate: certificate, private: key,
	}
}
