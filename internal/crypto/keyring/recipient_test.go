package keyring_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
)

func selfSigned(t *testing.T, key crypto.Signer) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<31, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestSealFor(t *testing.T) {
	ec := func(c elliptic.Curve) crypto.Signer {
		k, err := ecdsa.GenerateKey(c, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		key  crypto.Signer
		want string // empty: refused
	}{
		"RSA": {r, "RSA-OAEP-256"}, "P256": {ec(elliptic.P256()), "ECDH-ES+A256KW"}, "P384": {ec(elliptic.P384()), "ECDH-ES+A256KW"},
		"P521": {ec(elliptic.P521()), "ECDH-ES+A256KW"}, "P224": {ec(elliptic.P224()), ""}, "Ed25519": {ed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cert, plain := selfSigned(t, tc.key), []byte("the bytes of a key")
			text, algorithm, err := keyring.SealFor(cert, plain)
			if tc.want == "" {
				if !errors.Is(err, keyring.ErrNoEncryption) || text != "" {
					t.Errorf("got %q, %v", text, err)
				}
				return
			}
			if err != nil || algorithm != tc.want {
				t.Fatalf("got %s, %v", algorithm, err)
			}
			object, err := jose.ParseEncryptedCompact(text, []jose.KeyAlgorithm{jose.KeyAlgorithm(tc.want)}, []jose.ContentEncryption{jose.A256GCM})
			if err != nil {
				t.Fatal(err)
			}
			thumbprint := sha256.Sum256(cert.Raw)
			if got := object.Header.ExtraHeaders["x5t#S256"]; got != base64.RawURLEncoding.EncodeToString(thumbprint[:]) {
				t.Errorf("names the certificate %v", got)
			}
			opened, err := object.Decrypt(tc.key)
			if err != nil || !bytes.Equal(opened, plain) {
				t.Errorf("opens as %q, %v", opened, err)
			}
		})
	}
}
