package trust_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"log/slog"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/trust"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// TestWeakCAsOfBeforeAreNamed checks that a weak CA that an older version accepted stays trusted, and is logged.
func TestWeakCAsOfBeforeAreNamed(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		key, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "weak"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		stored := keyserver.Certificate{ID: keyserver.DigestOf(der).ID(), Subject: "/CN=weak", DER: der}
		if err := f.Store.Update(t.Context(), func(tx *sqlstore.Tx) error { return tx.InsertTrustedCA(t.Context(), stored) }); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		if err := trust.WarnOfWeakCAs(t.Context(), f.Store, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			t.Fatal(err)
		}
		if out := log.String(); strings.Count(out, "\n") != 1 || !strings.Contains(out, "/CN=weak") || !strings.Contains(out, "224") {
			t.Errorf("logged: %s", out)
		}
	})
}

// TestCAsThatCannotVouchAreRejected checks that a CA that cannot verify client certificates cannot be added.
func TestCAsThatCannotVouchAreRejected(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		for says, change := range map[string]func(*x509.Certificate){
			"extKeyUsage": func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} },
			"1.2.3.4": func(c *x509.Certificate) {
				c.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Critical: true, Value: []byte{5, 0}}}
			},
		} {
			template := &x509.Certificate{
				SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: says}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
			}
			change(template)
			der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.AddTrustedCA(t.Context(), f.Admin, der); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", says, err)
			}
		}
	})
}
