package rig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"sync/atomic"
	"testing"
	"time"
)

// CA is a self-signed CA certificate.
type CA struct {
	DER         []byte
	PEM         string
	Fingerprint string // SHA-256 of the DER, in hexadecimal
}

var serials atomic.Int64

// NewCA creates a unique CA that is valid for a year.
func NewCA(t testing.TB, name string) CA {
	t.Helper()
	return NewCAUntil(t, name, time.Now().AddDate(1, 0, 0))
}

// NewCAUntil creates a CA that is valid until notAfter.
func NewCAUntil(t testing.TB, name string, notAfter time.Time) CA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serials.Add(1)), Subject: pkix.Name{CommonName: name},
		NotBefore: notAfter.AddDate(-2, 0, 0), NotAfter: notAfter,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	Must(t, err)
	return CAOf(der)
}

// CAOf returns the CA with this certificate.
func CAOf(der []byte) CA {
	sum := sha256.Sum256(der)
	return CA{der, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), fmt.Sprintf("%x", sum)}
}
