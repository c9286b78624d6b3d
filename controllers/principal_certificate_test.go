package controllers

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestParseLeafRefuses checks that errors do not quote the text, because a reference may name a private key by mistake.
func TestParseLeafRefuses(t *testing.T) {
	block := func(kind, body string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte(body)}))
	}
	damaged := func(kind string) string { return "-----BEGIN " + kind + "-----\nAAA\n-----END " + kind + "-----\n" }
	leaf := rig.NewCA(t, "A CA").PEM
	requested := &v1beta1.PrincipalCertificate{Request: &v1beta1.CertificateRequestSource{}}
	declared := &v1beta1.PrincipalCertificate{Certificate: &v1beta1.ClientCertificateSource{}}
	for name, tc := range map[string]struct {
		from *v1beta1.PrincipalCertificate
		text string
		says string
	}{
		"Nothing":            {declared, "", "must be a PEM block of type CERTIFICATE"},
		"Key":                {declared, block("PRIVATE KEY", "planted"), "must be a PEM block of type CERTIFICATE"},
		"NoCertificate":      {declared, block("CERTIFICATE", "planted"), "not an X.509 certificate"},
		"Damaged":            {declared, damaged("CERTIFICATE") + leaf, "line 3: the base64 of the block that begins on line 1 is incomplete"},
		"DamagedIssuer":      {declared, leaf + damaged("CERTIFICATE"), "is not a list of PEM certificates: line "},
		"DamagedRequest":     {requested, damaged("CERTIFICATE REQUEST") + block("CERTIFICATE REQUEST", "planted"), "line 3: the base64 of the block that begins on line 1 is incomplete"},
		"CA":                 {declared, leaf, "is a CA certificate"},
		"RequestNothing":     {requested, "planted", "is not a PEM block of type CERTIFICATE REQUEST"},
		"RequestCertificate": {requested, rig.NewCA(t, "A CA").PEM, "is not a PEM block of type CERTIFICATE REQUEST"},
		"NoRequest":          {requested, block("CERTIFICATE REQUEST", "planted"), "not a PKCS#10 certificate request"},
		"TwoRequests":        {requested, block("CERTIFICATE REQUEST", "planted") + block("CERTIFICATE REQUEST", "planted"), "more than one PEM block"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseLeaf([]byte(tc.text), &v1beta1.Principal{Spec: v1beta1.PrincipalSpec{Certificate: tc.from}})
			if err == nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "planted") {
				t.Errorf("answers %v, want %q", err, tc.says)
			}
		})
	}
}

// TestRenewal checks that a certificate is due at the end of two thirds of its lifetime, exactly at the second in the
// status, because the object is reconciled at that second.
func TestRenewal(t *testing.T) {
	from := time.Date(2026, 1, 1, 0, 0, 0, 700_000_000, time.UTC)
	cert := &x509.Certificate{NotBefore: from, NotAfter: from.Add(30 * time.Hour)}
	renew := time.Date(2026, 1, 1, 20, 0, 0, 0, time.UTC)
	if got := renewalOf(cert); !got.Equal(renew) {
		t.Errorf("renewed after %s, want %s", got, renew)
	}
	for after, due := range map[time.Duration]bool{-time.Second: false, 0: true, time.Hour: true, 24 * time.Hour: true} {
		if l := (&declaredLeaf{now: renew.Add(after)}); l.due(cert) != due {
			t.Errorf("%s after it, due is %t", after, !due)
		}
	}
}

// TestExpiryOfPrincipals checks that the warning about a renewed certificate starts only when its renewal has failed
// for a while.
func TestExpiryOfPrincipals(t *testing.T) {
	at := func(day int) *metav1.Time {
		s := metav1.NewTime(time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC))
		return &s
	}
	warn := &metav1.Duration{Duration: 24 * 30 * time.Hour}
	for name, tc := range map[string]struct {
		status v1beta1.PrincipalStatus
		want   time.Duration
	}{
		"Declared": {v1beta1.PrincipalStatus{NotAfter: at(30)}, warn.Duration},
		"Issued":   {v1beta1.PrincipalStatus{NotAfter: at(31), RenewAfter: at(21)}, 5 * 24 * time.Hour},
	} {
		_, until, got := principalAdapter{}.Expiry(&v1beta1.Principal{Spec: v1beta1.PrincipalSpec{WarnBefore: warn}, Status: tc.status})
		if got != tc.want || !until.Equal(tc.status.NotAfter) {
			t.Errorf("%s: warned %s before %s, want %s", name, got, until, tc.want)
		}
	}
	if _, until, _ := (principalAdapter{}).Expiry(&v1beta1.Principal{}); until != nil {
		t.Errorf("one without a certificate ends at %s", until)
	}
}

// connected returns a connection to a new key server.
func connected(t *testing.T) *connection.Connection {
	t.Helper()
	s := testserver.Start(t)
	told := make(chan struct{}, 1)
	all := connection.NewConnections(connection.DialHTTP, clock.RealClock{}, timing, logr.Discard())
	all.Listen(func(context.Context, connection.Notice) {
		select {
		case told <- struct{}{}:
		default:
		}
	})
	t.Cleanup(all.Close)
	c, err := all.Ensure("tested", connection.Login{Version: "1", Administrator: connection.Endpoint{
		BaseURL: s.URL(), RootCAs: s.Pool(t), Username: testserver.AdminName,
		Password: func(context.Context) (string, error) { return testserver.AdminPassword, nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	for !c.Status().Open {
		<-told
	}
	return c
}

// requesting returns a Principal with a request for a certificate of three days.
func requesting(t *testing.T, name string) *v1beta1.Principal {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	rig.Must(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, key)
	rig.Must(t, err)
	text, days := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), int32(3)
	return &v1beta1.Principal{Spec: v1beta1.PrincipalSpec{Certificate: &v1beta1.PrincipalCertificate{
		Request: &v1beta1.CertificateRequestSource{Inline: &text}, ValidityDays: &days,
	}}}
}

// TestRenewalLeavesTheOldOne checks that a renewed certificate stays valid next to the new one.
func TestRenewalLeavesTheOldOne(t *testing.T) {
	c, a, obj := connected(t), principalAdapter{}, requesting(t, "renewed")
	in := reconcile.Input{Conn: c, Now: time.Now()}
	look := func() (declaredPrincipal, reconcile.External) {
		t.Helper()
		want, err := a.Declared(t.Context(), in, obj)
		rig.Must(t, err)
		seen, err := a.Observe(t.Context(), in, obj, &want)
		rig.Must(t, err)
		return want, seen
	}
	want, seen := look()
	if seen.Exists {
		t.Fatalf("there is %s", seen.What)
	}
	made, err := a.Create(t.Context(), c, want)
	rig.Must(t, err)
	obj.Status.PrincipalID = made.ID
	first := want.leaf.cert
	if want, seen := look(); len(seen.Drift) > 0 || !want.leaf.cert.Equal(first) {
		t.Fatalf("when it is new it differs: %+v", seen.Drift)
	}

	in.Now = renewalOf(first)
	want, seen = look()
	if len(seen.Drift) != 1 || seen.Drift[0].Field != "certificate" || !seen.Renewed || len(seen.Blockers) > 0 {
		t.Fatalf("when it is due: %+v", seen)
	}
	if _, err := a.Update(t.Context(), c, want, seen); err != nil {
		t.Fatal(err)
	}
	in.Now = time.Now()
	if _, seen = look(); len(seen.Drift) > 0 {
		t.Errorf("afterwards: %+v", seen.Drift)
	}
	found, err := c.Admin.FindCertificatesByTransportPrincipal(t.Context(), schema.CertificatesRequest{Subject: "/CN=renewed", IncludeBodies: true})
	rig.Must(t, err)
	if len(found.Certificates) != 2 || currentCertificate(found.Certificates[0]) == nil || currentCertificate(found.Certificates[1]) == nil {
		t.Errorf("the principal gets in with %d certificates", len(found.Certificates))
	}
}

// TestFailedEnrolmentsIssueOnce checks that retries after a failed enrollment do not issue new certificates.
func TestFailedEnrolmentsIssueOnce(t *testing.T) {
	c, a, obj := connected(t), principalAdapter{}, requesting(t, "tried")
	in := reconcile.Input{Conn: c, Now: time.Now()}
	issued := func() int {
		found, err := c.Admin.FindCertificatesBySubject(t.Context(), schema.CertificatesRequest{Subject: "/CN=tried"})
		rig.Must(t, err)
		return len(found.Certificates)
	}
	for range 3 {
		want, err := a.Declared(t.Context(), in, obj)
		rig.Must(t, err)
		want.roles = []schema.HexID{{7: 0xff}} // a role that does not exist
		if out, err := a.Create(t.Context(), c, want); err == nil {
			t.Fatalf("made %+v", out)
		}
		if n := issued(); n != 1 {
			t.Fatalf("%d certificates were issued", n)
		}
	}
}
