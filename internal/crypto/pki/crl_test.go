package pki_test

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
)

func sealed(t testing.TB, ca pki.Identity, change func(*x509.RevocationList)) []byte {
	t.Helper()
	list := &x509.RevocationList{
		Number: big.NewInt(7), ThisUpdate: now.Add(-time.Hour), NextUpdate: now.Add(time.Hour),
		RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: big.NewInt(0x1234), RevocationTime: now.Add(-time.Minute)}},
	}
	change(list)
	der, err := x509.CreateRevocationList(rand.Reader, list, ca.Certificate, ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func TestParseCRL(t *testing.T) {
	ca := newCA(t)
	critical := pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 27}, Critical: true, Value: []byte{2, 1, 1}}
	for name, tc := range map[string]struct {
		reason string
		change func(*x509.RevocationList)
	}{
		"Delta": {"a partial list would hide what it leaves out", func(l *x509.RevocationList) { l.ExtraExtensions = []pkix.Extension{critical} }},
		"Indirect": {"an entry that speaks for another issuer", func(l *x509.RevocationList) {
			l.RevokedCertificateEntries[0].ExtraExtensions = []pkix.Extension{critical}
		}},
		"Stale":  {"due for replacement at this moment", func(l *x509.RevocationList) { l.NextUpdate = now }},
		"Future": {"made after now, by more than clocks differ", func(l *x509.RevocationList) { l.ThisUpdate, l.NextUpdate = now.Add(time.Hour), now.Add(2*time.Hour) }},
	} {
		if _, err := pki.ParseCRL(sealed(t, ca, tc.change), now); err == nil {
			t.Errorf("%s: %s: it is taken", name, tc.reason)
		}
	}
	der := sealed(t, ca, func(*x509.RevocationList) {})
	for name, bad := range map[string][]byte{"Empty": nil, "Trailing": append(bytes.Clone(der), 0), "Cut": der[:len(der)-1], "Certificate": ca.Certificate.Raw} {
		if _, err := pki.ParseCRL(bad, now); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
	list, err := pki.ParseCRL(der, now)
	if err != nil {
		t.Fatal(err)
	}
	if !list.SignedBy(ca.Certificate) || list.SignedBy(newCA(t).Certificate) {
		t.Error("the list is its issuer's, and not that of a CA with the same name")
	}
	if s := list.Serials(); len(s) != 1 || !bytes.Equal(s[0], []byte{0x12, 0x34}) {
		t.Errorf("it revokes %x", s)
	}
}

// FuzzParseCRL checks that an accepted CRL of the CA is valid now and has the content that the CA signed.
func FuzzParseCRL(f *testing.F) {
	ca, err := pki.NewCA("Test CA", now, rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	signed := sealed(f, ca, func(*x509.RevocationList) {})
	genuine, err := x509.ParseRevocationList(signed)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(signed)
	f.Add(sealed(f, ca, func(l *x509.RevocationList) { l.RevokedCertificateEntries = nil }))
	f.Add(ca.Certificate.Raw)
	f.Fuzz(func(t *testing.T, der []byte) {
		list, err := pki.ParseCRL(der, now)
		if err != nil {
			return
		}
		if !now.Before(list.NextUpdate()) || list.ThisUpdate().After(now.Add(5*time.Minute)) {
			t.Error("it is not in force")
		}
		if !list.SignedBy(ca.Certificate) {
			return
		}
		// The second seed is also valid. Any other accepted CRL must be equal to the first.
		raw, err := x509.ParseRevocationList(der)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(raw.RawTBSRevocationList, genuine.RawTBSRevocationList) && len(raw.RevokedCertificateEntries) > 0 {
			t.Errorf("forged: %x", der)
		}
	})
}
