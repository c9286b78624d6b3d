package engine_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sessionrows"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

func newKey(t *testing.T) crypto.Signer {
	t.Helper()
	return enginetest.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
}

// outside returns an external CA.
func outside(t *testing.T, f *enginetest.Fixture, name string) pki.Identity {
	t.Helper()
	return enginetest.Must(pki.NewCA(name, f.Clock.Now().Add(-time.Hour), rand.Reader))(t)
}

func trust(t *testing.T, f *enginetest.Fixture, ca pki.Identity) string {
	t.Helper()
	enginetest.Must(f.AddTrustedCA(ctx, f.Admin, ca.Certificate.Raw))(t)
	return pki.RevocationDigest(ca.Certificate.Raw)
}

func enrol(t *testing.T, f *enginetest.Fixture, roles []keyserver.ID, certs ...*x509.Certificate) keyserver.Principal {
	t.Helper()
	n := keyserver.Enrolment{Roles: roles}
	for _, c := range certs {
		n.Certificates = append(n.Certificates, c.Raw)
	}
	done := enginetest.Must(f.EnrollCertificates(ctx, f.Admin, n))(t)
	return enginetest.Must(f.Store.Principal(ctx, done[0].Principal))(t)
}

// session returns a caller that logged in with a certificate.
func session(p keyserver.Principal, cert *x509.Certificate) keyserver.Caller {
	return keyserver.Caller{
		Principal: p.Ref(), Name: p.Name, Type: p.Type, Kind: keyserver.CertificateSession, RequestID: "test",
		Certificate: keyserver.DigestOf(cert.Raw).ID(),
	}
}

func TestIssueRefusals(t *testing.T) {
	f := enginetest.New(t, enginetest.Databases["SQLite"](t))
	key := newKey(t)
	good := enginetest.NewRequest(t, "agent", key)
	broken := append([]byte(nil), good...)
	broken[len(broken)-1] ^= 1
	small := enginetest.Must(ecdsa.GenerateKey(elliptic.P224(), rand.Reader))(t)
	cases := map[string]struct {
		request []byte
		days    int
	}{
		"NoRequest":    {nil, 0},
		"Certificate":  {f.Prepared.CA.Certificate.Raw, 0},
		"Signature":    {broken, 0},
		"EmptySubject": {enginetest.NewRequest(t, "", key), 0},
		"SmallCurve":   {enginetest.NewRequest(t, "agent", small), 0},
		"LongSubject":  {enginetest.NewRequest(t, strings.Repeat("a", 1100), key), 0},
		"ControlChar":  {enginetest.NewRequest(t, "a\x00b", key), 0},
		"NameOfTheCA":  {enginetest.NewRequest(t, f.Prepared.CA.Certificate.Subject.CommonName, key), 0},
		"OutlivesCA":   {good, 20 * 365},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := f.IssueCertificate(ctx, f.Admin, keyserver.CertificateRequest{Request: tc.request, ValidityDays: tc.days})
			if fault.CodeOf(err) != fault.InvalidArgument {
				t.Errorf("got %v", err)
			}
			if row := f.LastRow(t); row.Outcome != keyserver.Failed || row.Reason != string(fault.ReasonInvalidArgument) {
				t.Errorf("audited as %+v", row)
			}
		})
	}
	if list := enginetest.Must(f.FindCertificates(ctx, f.Admin, keyserver.CertificateLookup{Pattern: "%"}))(t); len(list) != 0 {
		t.Errorf("refused requests left %d certificates", len(list))
	}
}

// TestIssuedCertificate checks that an issued certificate takes only the key and the name from the request.
func TestIssuedCertificate(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		key := newKey(t)
		request := enginetest.Must(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
			Subject: pkix.Name{Country: []string{"DE"}, CommonName: "agent"}, DNSNames: []string{"keys.example.com"},
			ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 3, 1, 1, 0xff}}},
		}, key))(t)
		issued := enginetest.Must(f.IssueCertificate(ctx, f.Admin, keyserver.CertificateRequest{Request: request, ValidityDays: 2}))(t)
		cert := enginetest.Must(x509.ParseCertificate(issued.Certificate.DER))(t)
		if cert.IsCA || len(cert.DNSNames) > 0 || cert.KeyUsage != x509.KeyUsageDigitalSignature ||
			len(cert.ExtKeyUsage) != 1 || cert.ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth {
			t.Errorf("the certificate may do more than authenticate a client: %+v", cert)
		}
		if err := cert.CheckSignatureFrom(f.Prepared.CA.Certificate); err != nil {
			t.Error(err)
		}
		if !cert.NotAfter.Equal(f.Clock.Now().Add(48 * time.Hour)) {
			t.Errorf("it ends %v", cert.NotAfter)
		}
		stored := enginetest.Must(f.FindCertificates(ctx, f.Admin, keyserver.CertificateLookup{Pattern: "/C=DE/CN=agent"}))(t)
		if len(stored) != 1 || stored[0].Status != keyserver.StatusSavedRequest || string(stored[0].Request) != string(request) ||
			stored[0].ID != keyserver.DigestOf(cert.Raw).ID() || !stored[0].Principal.IsZero() {
			t.Errorf("stored as %+v", stored)
		}
		// Issuing a certificate does not enrol it.
		if _, err := f.Store.PrincipalByName(ctx, keyserver.CertificatePrincipal, "/C=DE/CN=agent"); err == nil {
			t.Error("issuing made a principal")
		}
	})
}

// TestEnrolmentRefusals checks the refusals of contract 12.6.
func TestEnrolmentRefusals(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		ca, stranger := outside(t, f, "outside"), outside(t, f, "outside")
		trust(t, f, ca)
		now := f.Clock.Now()
		leaf := func(change func(*x509.Certificate)) *x509.Certificate {
			return enginetest.NewAgent(t, ca, "agent", now, change).Certificate
		}
		cases := map[string]*x509.Certificate{
			"NoDigitalSignature": leaf(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyEncipherment }),
			"NoKeyUsage":         leaf(func(c *x509.Certificate) { c.KeyUsage = 0 }),
			"NoClientAuth":       leaf(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }),
			"NoExtKeyUsage":      leaf(func(c *x509.Certificate) { c.ExtKeyUsage = nil }),
			"Expired":            leaf(func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(-2*time.Hour), now }),
			"CA":                 leaf(func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true }),
			"EmptySubject":       leaf(func(c *x509.Certificate) { c.Subject = pkix.Name{} }),
			"SameNameOtherKey":   enginetest.NewAgent(t, stranger, "agent", now, nil).Certificate,
			"UnknownCritical": leaf(func(c *x509.Certificate) {
				c.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3}, Critical: true, Value: []byte{5, 0}}}
			}),
		}
		good := leaf(nil)
		for name, bad := range cases {
			t.Run(name, func(t *testing.T) {
				// If one certificate is refused, none is enrolled.
				_, err := f.EnrollCertificates(ctx, f.Admin, keyserver.Enrolment{Certificates: [][]byte{good.Raw, bad.Raw}})
				if fault.CodeOf(err) != fault.InvalidArgument {
					t.Errorf("got %v", err)
				}
			})
		}
		_, err := f.EnrollCertificates(ctx, f.Admin, keyserver.Enrolment{Certificates: [][]byte{good.Raw}, Roles: []keyserver.ID{values.IDFromUint64(77)}})
		if fault.CodeOf(err) != fault.InvalidArgument {
			t.Errorf("a role that does not exist: got %v", err)
		}
		if list := enginetest.Must(f.FindCertificates(ctx, f.Admin, keyserver.CertificateLookup{Pattern: "%"}))(t); len(list) != 0 {
			t.Errorf("refused enrolments left %d certificates", len(list))
		}
		if _, err := f.Store.PrincipalByName(ctx, keyserver.CertificatePrincipal, "/CN=agent"); err == nil {
			t.Error("a refused enrolment left a principal")
		}
	})
}

func TestEnrolment(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		ca := outside(t, f, "outside")
		trust(t, f, ca)
		first, second := enginetest.NewAgent(t, ca, "agent", f.Clock.Now(), nil), enginetest.NewAgent(t, ca, "agent", f.Clock.Now(), nil)
		future := enginetest.NewAgent(t, ca, "tomorrow", f.Clock.Now().Add(24*time.Hour), nil)
		p := enrol(t, f, []keyserver.ID{keyserver.RoleExchanger}, first.Certificate, second.Certificate, future.Certificate)
		if p.Name != "/CN=agent" || p.Flags != keyserver.FlagEnable || len(p.Roles) != 1 || p.System != f.Prepared.System {
			t.Errorf("enrolled as %+v", p)
		}
		list := enginetest.Must(f.FindCertificates(ctx, f.Admin, keyserver.CertificateLookup{TransportSubject: "/CN=agent"}))(t)
		if len(list) != 2 || list[0].Status != keyserver.StatusRegular || list[0].Principal != p.ID || list[1].Principal != p.ID {
			t.Errorf("one principal per subject: got %+v", list)
		}
		// The second enrolment changes nothing. Different roles are refused.
		if again := enrol(t, f, nil, first.Certificate); again.ID != p.ID || len(again.Roles) != 1 {
			t.Errorf("again: %+v", again)
		}
		_, err := f.EnrollCertificates(ctx, f.Admin, keyserver.Enrolment{Certificates: [][]byte{first.Certificate.Raw}, Roles: []keyserver.ID{keyserver.RoleAuditor}})
		if fault.CodeOf(err) != fault.AlreadyExists {
			t.Errorf("other roles: got %v", err)
		}
		// A certificate of the internal CA can be enrolled, although that CA is not one of the added trusted CAs.
		issued := enginetest.Must(f.IssueCertificate(ctx, f.Admin, keyserver.CertificateRequest{Request: enginetest.NewRequest(t, "own", newKey(t))}))(t)
		own := enrol(t, f, nil, enginetest.Must(x509.ParseCertificate(issued.Certificate.DER))(t))
		stored := enginetest.Must(f.FindCertificates(ctx, f.Admin, keyserver.CertificateLookup{Principal: own.ID}))(t)
		if len(stored) != 1 || stored[0].Status != keyserver.StatusRegular || stored[0].Request == nil {
			t.Errorf("issued, then enrolled: %+v", stored)
		}
	})
}

func TestRenewal(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		ca := outside(t, f, "outside")
		trust(t, f, ca)
		foreign := enginetest.NewAgent(t, ca, "foreign", f.Clock.Now(), nil).Certificate
		enrol(t, f, nil, foreign)
		_, err := f.RenewCertificate(ctx, f.Admin, keyserver.DigestOf(foreign.Raw))
		if fault.CodeOf(err) != fault.NoSavedRequest {
			t.Errorf("enrolled, not issued: got %v", err)
		}
		_, err = f.RenewCertificate(ctx, f.Admin, keyserver.Digest{1})
		if fault.CodeOf(err) != fault.NotFound {
			t.Errorf("no such certificate: got %v", err)
		}

		issued := enginetest.Must(f.IssueCertificate(ctx, f.Admin, keyserver.CertificateRequest{Request: enginetest.NewRequest(t, "own", newKey(t)), ValidityDays: 3}))(t)
		old := enginetest.Must(x509.ParseCertificate(issued.Certificate.DER))(t)
		p := enrol(t, f, []keyserver.ID{keyserver.RoleAuditor}, old)
		caller := session(p, old)
		enginetest.Must(f.Roles(ctx, caller))(t)

		f.Clock.Advance(time.Hour)
		renewed := enginetest.Must(f.RenewCertificate(ctx, f.Admin, keyserver.DigestOf(old.Raw)))(t)
		cert := enginetest.Must(x509.ParseCertificate(renewed.Certificate.DER))(t)
		if !cert.PublicKey.(*ecdsa.PublicKey).Equal(old.PublicKey) || pki.SlashName(cert.Subject) != p.Name || !cert.NotAfter.Equal(f.Clock.Now().Add(72*time.Hour)) {
			t.Errorf("renewed as %v until %v", cert.Subject, cert.NotAfter)
		}
		for _, c := range enginetest.Must(f.FindCertificates(ctx, f.Admin, keyserver.CertificateLookup{Principal: p.ID}))(t) {
			if want := map[bool]keyserver.CertificateStatus{true: keyserver.StatusExpired, false: keyserver.StatusRegular}[c.ID == issued.Certificate.ID]; c.Status != want {
				t.Errorf("%s is %s", c.ID, c.Status.Label())
			}
		}
		_, err = f.RenewCertificate(ctx, f.Admin, keyserver.DigestOf(old.Raw))
		if fault.CodeOf(err) != fault.NotFound {
			t.Errorf("renewed twice: got %v", err)
		}
		_, err = f.EnrollCertificates(ctx, f.Admin, keyserver.Enrolment{Certificates: [][]byte{old.Raw}})
		if fault.CodeOf(err) != fault.InvalidArgument {
			t.Errorf("the old one enrolled again: got %v", err)
		}
		_, err = f.Roles(ctx, caller)
		f.Refused(t, err, fault.SessionExpired, fault.ReasonCertificateEnded)
		enginetest.Must(f.Roles(ctx, session(p, cert)))(t)
	})
}

func TestReset(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		for name, id := range map[string]keyserver.ID{"Nobody": values.IDFromUint64(5), "Password": f.Admin.Principal.ID} {
			if _, err := f.ResetTransportPrincipal(ctx, f.Admin, id); fault.CodeOf(err) != fault.NotFound {
				t.Errorf("%s: got %v", name, err)
			}
		}
		system := f.Caller(t, keyserver.CertificatePrincipal, "system")
		if _, err := f.ResetTransportPrincipal(ctx, f.Admin, system.Principal.ID); fault.CodeOf(err) != fault.BuiltInPrincipal {
			t.Errorf("system: got %v", err)
		}
		ca := outside(t, f, "outside")
		trust(t, f, ca)
		agent, other := enginetest.NewAgent(t, ca, "agent", f.Clock.Now(), nil).Certificate, enginetest.NewAgent(t, ca, "other", f.Clock.Now(), nil).Certificate
		p, untouched := enrol(t, f, []keyserver.ID{keyserver.RoleAuditor}, agent), enrol(t, f, []keyserver.ID{keyserver.RoleAuditor}, other)
		caller := session(p, agent)
		enginetest.Must(f.Roles(ctx, caller))(t)
		record := sessionrows.SessionRecord{ID: values.IDFromUint64(9), Hash: [32]byte{9}, Principal: p.Ref(), Kind: keyserver.CertificateSession, ExpiresAt: f.Clock.Now().Add(time.Hour)}
		if err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error { return tx.InsertSession(ctx, record) }); err != nil {
			t.Fatal(err)
		}

		done := enginetest.Must(f.ResetTransportPrincipal(ctx, f.Admin, p.ID))(t)
		if done.Certificates != 1 || done.Sessions != 1 {
			t.Errorf("took away %+v", done)
		}
		_, err := f.Roles(ctx, caller)
		f.Refused(t, err, fault.SessionNotFound, fault.ReasonCertificateEnded)
		enginetest.Must(f.Roles(ctx, session(untouched, other)))(t)

		again := enrol(t, f, nil, agent)
		if again.ID != p.ID || len(again.Roles) != 1 {
			t.Errorf("enrolled anew as %+v", again)
		}
		enginetest.Must(f.Roles(ctx, caller))(t)
	})
}

func TestTooManyCertificates(t *testing.T) {
	f := enginetest.New(t, enginetest.Databases["SQLite"](t))
	var id [8]byte
	err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		for i := range keyserver.MaxCertificates + 1 {
			id[6], id[7] = byte(i>>8), byte(i)
			if err := tx.InsertCertificate(ctx, keyserver.Certificate{ID: id, Subject: "/CN=many", DER: id[:]}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.FindCertificates(ctx, f.Admin, keyserver.CertificateLookup{Pattern: "/CN=%"})
	if fault.CodeOf(err) != fault.InvalidArgument || !strings.Contains(err.Error(), "narrow") {
		t.Errorf("got %v", err)
	}
}

func TestRSAAndEdwardsKeysMayEnrol(t *testing.T) {
	f := enginetest.New(t, enginetest.Databases["SQLite"](t))
	ca := outside(t, f, "outside")
	trust(t, f, ca)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	small := enginetest.Must(rsa.GenerateKey(rand.Reader, 1024))(t)
	for name, tc := range map[string]struct {
		key  crypto.Signer
		code fault.Code
	}{
		"Ed25519": {ed, ""}, "RSA2048": {enginetest.Must(rsa.GenerateKey(rand.Reader, 2048))(t), ""}, "RSA1024": {small, fault.InvalidArgument},
	} {
		cert := enginetest.NewAgentFor(t, ca, name, f.Clock.Now(), tc.key, nil).Certificate
		_, err := f.EnrollCertificates(ctx, f.Admin, keyserver.Enrolment{Certificates: [][]byte{cert.Raw}})
		if fault.CodeOf(err) != tc.code {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestImportCRL checks that a revocation list is accepted only if it is complete, valid now, signed by a trusted CA,
// and not older than the stored list.
func TestImportCRL(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		ca, stranger := outside(t, f, "outside"), outside(t, f, "outside")
		digest := trust(t, f, ca)
		now := f.Clock.Now()
		held := enginetest.NewCRL(t, ca, 5, now.Add(-time.Hour), nil)
		if digests := enginetest.Must(f.ImportCRL(ctx, f.Admin, held))(t); len(digests) != 1 || digests[0] != digest {
			t.Errorf("speaks for %v", digests)
		}
		broken := append([]byte(nil), held...)
		broken[len(broken)-1] ^= 1
		delta := pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 27}, Critical: true, Value: []byte{2, 1, 1}}
		for name, list := range map[string][]byte{
			"NoList": []byte("x"), "Signature": broken,
			"Stranger":   enginetest.NewCRL(t, stranger, 6, now, nil),
			"Older":      enginetest.NewCRL(t, ca, 6, now.Add(-2*time.Hour), nil),
			"NumberBack": enginetest.NewCRL(t, ca, 4, now, nil),
			"Due":        enginetest.NewCRL(t, ca, 6, now, func(l *x509.RevocationList) { l.NextUpdate = now.Add(time.Nanosecond) }),
			"Future":     enginetest.NewCRL(t, ca, 6, now.Add(time.Hour), nil),
			"Delta":      enginetest.NewCRL(t, ca, 6, now, func(l *x509.RevocationList) { l.ExtraExtensions = []pkix.Extension{delta} }),
			"Indirect": enginetest.NewCRL(t, ca, 6, now, func(l *x509.RevocationList) {
				l.RevokedCertificateEntries = []x509.RevocationListEntry{{SerialNumber: big.NewInt(1), RevocationTime: now, ExtraExtensions: []pkix.Extension{
					{Id: asn1.ObjectIdentifier{2, 5, 29, 29}, Critical: true, Value: []byte{0x30, 0}},
				}}}
			}),
		} {
			if _, err := f.ImportCRL(ctx, f.Admin, list); fault.CodeOf(err) != fault.InvalidArgument {
				t.Errorf("%s: got %v", name, err)
			}
		}
		enginetest.Must(f.ImportCRL(ctx, f.Admin, held))(t) // the same list again
		issuer := enginetest.Must(f.RevocationIssuer(ctx, f.Admin, digest))(t)
		if issuer.CRL == nil || issuer.CRL.Digest != keyserver.DigestOf(held) || issuer.State != keyserver.CurrentEvidence {
			t.Errorf("holds %+v", issuer)
		}
		next := enginetest.NewCRL(t, ca, 6, now, nil, enginetest.NewAgent(t, ca, "x", now, nil).Certificate)
		enginetest.Must(f.ImportCRL(ctx, f.Admin, next))(t)
		f.Clock.Advance(8 * 24 * time.Hour)
		if list := enginetest.Must(f.RevocationIssuers(ctx, f.Admin))(t); len(list) != 1 || list[0].CRL.Revoked != 1 || list[0].State != keyserver.StaleEvidence {
			t.Errorf("lists %+v", list)
		}
	})
}

func TestRevocationPolicyNeedsATrustedCA(t *testing.T) {
	f := enginetest.New(t, enginetest.Databases["SQLite"](t))
	policy := keyserver.RevocationPolicy{Mode: keyserver.RevocationRequired}
	unknown := strings.Repeat("AB", 32)
	if err := f.SetRevocationPolicy(ctx, f.Admin, keyserver.RevocationPolicyChange{Digest: unknown, Policy: policy}); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("set: got %v", err)
	}
	if _, err := f.RevocationIssuer(ctx, f.Admin, unknown); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("read: got %v", err)
	}
	digest := trust(t, f, outside(t, f, "outside"))
	if issuer := enginetest.Must(f.RevocationIssuer(ctx, f.Admin, digest))(t); issuer.Policy.Mode != keyserver.RevocationOff || issuer.State != keyserver.NoEvidence {
		t.Errorf("without a policy: %+v", issuer)
	}
	if err := f.SetRevocationPolicy(ctx, f.Admin, keyserver.RevocationPolicyChange{Digest: digest, Policy: keyserver.RevocationPolicy{Mode: "maybe"}}); fault.CodeOf(err) != fault.InvalidArgument {
		t.Errorf("an unknown mode: got %v", err)
	}
}

// TestCertificateCallersAreJudgedEachTime checks that each operation evaluates the revocation evidence for the
// certificate of the session (contract 19.6).
func TestCertificateCallersAreJudgedEachTime(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		ca := outside(t, f, "outside")
		digest := trust(t, f, ca)
		now := f.Clock.Now()
		good, bad := enginetest.NewAgent(t, ca, "good", now, nil).Certificate, enginetest.NewAgent(t, ca, "bad", now, nil).Certificate
		roles := []keyserver.ID{keyserver.RoleAuditor}
		a, b := session(enrol(t, f, roles, good), good), session(enrol(t, f, roles, bad), bad)
		asks := func(who keyserver.Caller, code fault.Code, reason fault.Reason) {
			t.Helper()
			_, err := f.Roles(ctx, who)
			if code == "" {
				if err != nil {
					t.Errorf("%s: got %v", who.Name, err)
				}
				return
			}
			f.Refused(t, err, code, reason)
		}
		policy := func(mode keyserver.RevocationMode, age time.Duration) {
			t.Helper()
			if err := f.SetRevocationPolicy(ctx, f.Admin, keyserver.RevocationPolicyChange{Digest: digest, Policy: keyserver.RevocationPolicy{Mode: mode, MaxAge: age}}); err != nil {
				t.Fatal(err)
			}
		}
		stranger := a
		stranger.Certificate = keyserver.ID{}
		asks(stranger, fault.SessionNotFound, fault.ReasonCertificateEnded)
		stranger.Certificate = b.Certificate // belongs to another principal
		asks(stranger, fault.SessionNotFound, fault.ReasonCertificateEnded)

		asks(a, "", "")
		policy(keyserver.RevocationRequired, 0)
		asks(a, fault.RevocationUnavailable, fault.ReasonNoEvidence)
		enginetest.Must(f.ImportCRL(ctx, f.Admin, enginetest.NewCRL(t, ca, 1, now, nil)))(t)
		asks(a, "", "")
		asks(b, "", "")
		enginetest.Must(f.ImportCRL(ctx, f.Admin, enginetest.NewCRL(t, ca, 2, now, nil, bad)))(t)
		asks(a, "", "")
		asks(b, fault.CertificateRevoked, fault.ReasonRevoked)
		f.Clock.Advance(2 * time.Hour)
		policy(keyserver.RevocationRequired, time.Hour)
		asks(a, fault.RevocationStale, fault.ReasonStaleEvidence)
		asks(b, fault.CertificateRevoked, fault.ReasonRevoked)
		policy(keyserver.RevocationWhenAvailable, time.Hour)
		asks(a, "", "")
		asks(b, fault.CertificateRevoked, fault.ReasonRevoked)
		policy(keyserver.RevocationOff, 0)
		asks(b, "", "")
		// An administrator that logged in without a certificate is not affected.
		policy(keyserver.RevocationRequired, time.Second)
		asks(f.Admin, "", "")
		// The evidence is kept when the CA is removed and added again.
		ids := enginetest.Must(f.TrustedCAs(ctx, f.Admin))(t)
		enginetest.Must(f.RemoveTrustedCA(ctx, f.Admin, ids[0].ID))(t)
		asks(b, fault.CertificateRevoked, fault.ReasonRevoked)
		asks(a, fault.SessionNotFound, fault.ReasonIssuerUntrusted)
		trust(t, f, ca)
		asks(b, fault.CertificateRevoked, fault.ReasonRevoked)
		policy(keyserver.RevocationOff, 0)
		asks(a, "", "")
		f.Clock.Advance(366 * 24 * time.Hour)
		asks(a, fault.SessionExpired, fault.ReasonCertificateEnded)
	})
}
