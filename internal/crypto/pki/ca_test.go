package pki_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
)

type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// signed creates a certificate. If issuer is nil, it is self-signed.
func signed(t *testing.T, template *x509.Certificate, issuer *signer) signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(1)
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(time.Hour)
	}
	if issuer == nil {
		issuer = &signer{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.cert, key.Public(), issuer.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return signer{cert, key}
}

func authorityOf(name string, change func(*x509.Certificate)) *x509.Certificate {
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	change(c)
	return c
}

func clientOf(change func(*x509.Certificate)) *x509.Certificate {
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: "client"}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	change(c)
	return c
}

func extension(value []byte, critical bool, id ...int) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: asn1.ObjectIdentifier(id), Critical: critical, Value: value})
	}
}

func unchanged(*x509.Certificate) {}

// TestCheckCA checks that a CA is accepted if and only if its client certificates can be verified.
func TestCheckCA(t *testing.T) {
	directoryName := []byte{0x30, 0x08, 0xA0, 0x06, 0x30, 0x04, 0xA4, 0x02, 0x30, 0x00} // permits a directory name
	for name, tc := range map[string]struct {
		change func(*x509.Certificate)
		says   string // expected error; empty: accepted
	}{
		"Plain": {unchanged, ""},
		"ClientAuth": {func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		}, ""},
		"AnyUsage": {func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny} }, ""},
		"DNSConstraint": {func(c *x509.Certificate) {
			c.PermittedDNSDomains, c.PermittedDNSDomainsCritical = []string{"example"}, true
		}, ""},
		"UnknownExtension":       {extension([]byte{5, 0}, false, 1, 2, 3, 4), ""},
		"DirectoryConstraint":    {extension(directoryName, false, 2, 5, 29, 30), ""},
		"CriticalDirectory":      {extension(directoryName, true, 2, 5, 29, 30), "critical extension nameConstraints (2.5.29.30)"},
		"CriticalUnknown":        {extension([]byte{5, 0}, true, 1, 2, 3, 4), "critical extension 1.2.3.4"},
		"CriticalFreshestCRL":    {extension([]byte{5, 0}, true, 2, 5, 29, 46), "critical extension freshestCRL (2.5.29.46)"},
		"ServerAuth":             {func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }, "extKeyUsage (2.5.29.37) lacks clientAuth"},
		"UnknownUsage":           {func(c *x509.Certificate) { c.UnknownExtKeyUsage = []asn1.ObjectIdentifier{{1, 2, 3}} }, "extKeyUsage (2.5.29.37) lacks clientAuth"},
		"NoSigningOfCertificate": {func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign }, "keyUsage lacks keyCertSign"},
	} {
		t.Run(name, func(t *testing.T) {
			ca := signed(t, authorityOf(name, tc.change), nil)
			err := pki.CheckCA(ca.cert)
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
			client := signed(t, clientOf(unchanged), &ca)
			issuer, verified := pki.IssuerOf(client.cert, []*x509.Certificate{ca.cert}, now)
			if (verified == nil) != (err == nil) || (issuer == ca.cert) != (err == nil) {
				t.Errorf("a client certificate of it: %v, %v", issuer != nil, verified)
			}
			if verified != nil && (strings.Contains(verified.Error(), "is not trusted") || !strings.Contains(verified.Error(), "x509: ")) {
				t.Errorf("the verifier's cause is missing: %v", verified)
			}
		})
	}
	if err := pki.CheckCA(signed(t, clientOf(unchanged), nil).cert); err == nil || !strings.Contains(err.Error(), "basicConstraints") {
		t.Errorf("a client's certificate: %v", err)
	}
}

// TestIssuerOfSaysWhy checks that the error of a failed verification contains its cause.
func TestIssuerOfSaysWhy(t *testing.T) {
	ca := signed(t, authorityOf("CA", unchanged), nil)
	namesake := signed(t, authorityOf("CA", unchanged), nil)
	later := signed(t, authorityOf("CA", func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(time.Hour), now.Add(48*time.Hour) }), nil)
	past := signed(t, authorityOf("CA", func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(-48*time.Hour), now.Add(-time.Hour) }), nil)
	narrow := signed(t, authorityOf("CA", func(c *x509.Certificate) {
		c.PermittedDNSDomains, c.PermittedDNSDomainsCritical = []string{"example"}, true
	}), nil)
	for name, tc := range map[string]struct {
		by      signer
		change  func(*x509.Certificate)
		trusted []signer
		says    string // expected error; empty: verified
	}{
		"Trusted":     {ca, unchanged, []signer{namesake, ca}, ""},
		"ValidLater":  {ca, func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(30*time.Minute), now.Add(50*time.Minute) }, []signer{ca}, ""},
		"NotTrusted":  {ca, unchanged, nil, "its issuing CA /CN=CA is not trusted; add it with POST /api/trusted-cas"},
		"Namesake":    {ca, unchanged, []signer{namesake}, "certificate signed by unknown authority"},
		"CALater":     {later, unchanged, []signer{later}, "it becomes valid on " + later.cert.NotBefore.UTC().Format(time.RFC3339)},
		"CAExpired":   {past, unchanged, []signer{past}, "it expired on " + past.cert.NotAfter.UTC().Format(time.RFC3339)},
		"NameOutside": {narrow, func(c *x509.Certificate) { c.DNSNames = []string{"other.test"} }, []signer{narrow}, "not permitted"},
		"Critical":    {ca, extension([]byte{5, 0}, true, 1, 2, 3, 4), []signer{ca}, "unhandled critical extension"},
		"ServerAuth":  {ca, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }, []signer{ca}, "incompatible key usage"},
	} {
		t.Run(name, func(t *testing.T) {
			var cas []*x509.Certificate
			for _, s := range tc.trusted {
				cas = append(cas, s.cert)
			}
			issuer, err := pki.IssuerOf(signed(t, clientOf(tc.change), &tc.by).cert, cas, now)
			if (err == nil) != (tc.says == "") || (issuer == nil) != (err != nil) || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
}
