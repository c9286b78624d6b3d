package crash

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// certificate is a CA that a client trusts and stops trusting.
type certificate struct {
	der         []byte
	fingerprint string
}

func newCertificates(t *testing.T, name string, n int) []certificate {
	t.Helper()
	list := make([]certificate, n)
	for i := range list {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: fmt.Sprintf("%s %d", name, i)},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(der)
		list[i] = certificate{der, hex.EncodeToString(sum[:])}
	}
	return list
}

func fingerprintOf(row schema.TrustedCA) string {
	if row.CertHash == nil {
		return "without a hash"
	}
	return hex.EncodeToString(*row.CertHash)
}
