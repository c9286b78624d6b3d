package pki_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newCA(t *testing.T) pki.Identity {
	t.Helper()
	ca, err := pki.NewCA("Test CA", now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func TestServerCertificate(t *testing.T) {
	ca := newCA(t)
	hosts := []string{"localhost", "127.0.0.1", "keys.example.com"}
	server, err := ca.IssueServer("server", hosts, nil, now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate)
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if _, err := server.Certificate.Verify(x509.VerifyOptions{
			Roots: roots, CurrentTime: now, DNSName: "localhost", KeyUsages: []x509.ExtKeyUsage{usage},
		}); err != nil {
			t.Error(err)
		}
	}
	other := newCA(t)
	until := ca.Certificate.NotAfter
	last, err := ca.IssueServer("server", hosts, nil, until.Add(-20*24*time.Hour), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		cert, issuer pki.Identity
		hosts        []string
		at           time.Time
		want         bool
	}{
		"OtherHost":           {server, ca, []string{"elsewhere"}, now, true},
		"BeforeItsTime":       {server, ca, hosts, now.Add(-time.Hour), true},
		"LastThird":           {server, ca, hosts, now.Add(300 * 24 * time.Hour), true},
		"Expired":             {server, ca, hosts, now.Add(500 * 24 * time.Hour), true},
		"Fresh":               {server, ca, hosts, now, false},
		"AnotherIssuer":       {server, other, hosts, now, true},
		"ExpiredIssuer":       {server, ca, hosts, until, false},
		"OtherExpiredIssuer":  {server, other, hosts, until, false},
		"NothingToGain":       {last, ca, hosts, until.Add(-24 * time.Hour), false},
		"NothingButAnotherCA": {last, other, hosts, until.Add(-24 * time.Hour), true},
	}
	for name, tc := range cases {
		if got := pki.Renewal(tc.cert.Certificate, tc.hosts, tc.issuer.Certificate, tc.at); got != tc.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
	if _, err := ca.IssueServer("server", hosts, nil, until, rand.Reader); err == nil {
		t.Error("a CA that has expired issued a certificate")
	}
}

// TestLink checks that a client which trusts one CA can verify certificates of the next CA with a link, until the first
// CA expires.
func TestLink(t *testing.T) {
	before, next := newCA(t), newCA(t)
	link, err := before.Link(next.Certificate, now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	server, err := next.IssueServer("server", []string{"localhost"}, nil, now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	roots, path := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(before.Certificate)
	verify := func(at time.Time) error {
		_, err := server.Certificate.Verify(x509.VerifyOptions{Roots: roots, Intermediates: path, CurrentTime: at})
		return err
	}
	if verify(now) == nil {
		t.Error("without the link")
	}
	path.AddCert(link)
	if err := verify(now); err != nil {
		t.Error(err)
	}
	if link.NotAfter.After(before.Certificate.NotAfter) {
		t.Error("the link outlives who signed it")
	}
	if _, err := before.Link(next.Certificate, before.Certificate.NotAfter, rand.Reader); err == nil {
		t.Error("a CA that has expired vouched for another")
	}
}

func TestIdentityRoundTrip(t *testing.T) {
	ca := newCA(t)
	key, err := ca.MarshalKey()
	if err != nil {
		t.Fatal(err)
	}
	again, err := pki.ParseIdentity(ca.Certificate.Raw, key)
	if err != nil || !again.Key.Equal(ca.Key) {
		t.Errorf("got %v, %v", again, err)
	}
	for name, bad := range map[string][2][]byte{
		"NoCertificate": {nil, key}, "NoKey": {ca.Certificate.Raw, nil}, "NoECDSA": {ca.Certificate.Raw, rsaKey(t)},
	} {
		if _, err := pki.ParseIdentity(bad[0], bad[1]); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if printed := fmt.Sprintf("%v %+v %#v", ca, ca, ca); strings.Contains(printed, ca.Key.X.String()) || strings.Contains(printed, "PrivateKey") {
		t.Error("an identity prints its key")
	}
}

func rsaKey(t *testing.T) []byte {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func TestSlashName(t *testing.T) {
	cases := map[string]struct {
		name pkix.Name
		want string
	}{
		"Empty": {pkix.Name{}, ""},
		"Usual": {pkix.Name{Country: []string{"DE"}, Organization: []string{"Example"}, CommonName: "Root"}, "/C=DE/O=Example/CN=Root"},
		"SlashInAValue": {
			pkix.Name{CommonName: "a/CN=admin"}, `/CN=a\/CN=admin`,
		},
		"Backslash": {pkix.Name{CommonName: `a\`}, `/CN=a\\`},
		"UnknownAttribute": {
			pkix.Name{Names: []pkix.AttributeTypeAndValue{{Type: asn1.ObjectIdentifier{1, 2, 3}, Value: "x"}}}, "/1.2.3=x",
		},
		"OrderOfTheCertificate": {
			pkix.Name{Names: []pkix.AttributeTypeAndValue{
				{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "first"}, {Type: asn1.ObjectIdentifier{2, 5, 4, 6}, Value: "DE"},
			}}, "/CN=first/C=DE",
		},
	}
	for name, tc := range cases {
		if got := pki.SlashName(tc.name); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

// TestRevocationDigest checks contract 2.9: SHA-256 of a DER certificate; SHA-384 if its EC key has 384 bits or more.
func TestRevocationDigest(t *testing.T) {
	ec := newCA(t).Certificate.Raw
	if got, want := pki.RevocationDigest(ec), fmt.Sprintf("%X", sha512.Sum384(ec)); got != want {
		t.Errorf("P-384: got %s, want %s", got, want)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now, NotAfter: now.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := pki.RevocationDigest(der), fmt.Sprintf("%X", sha256.Sum256(der)); got != want {
		t.Errorf("RSA: got %s, want %s", got, want)
	}
	if got := pki.RevocationDigest([]byte("not a certificate")); got != "" {
		t.Errorf("no certificate: got %s", got)
	}
}
