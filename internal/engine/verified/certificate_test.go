package verified_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// certificateLiar is a key server with wrong results for certificates, revocation and exports.
type certificateLiar struct {
	keyserver.Port
	deceit
	issuer pki.Identity // issues certificates that are not stored
	spoil  func(c *keyserver.Certificate)
	clear  bool // returns an exported key in plain text
	other  bool // exports for another principal
}

func (l *certificateLiar) FindCertificates(ctx context.Context, by keyserver.Caller, lookup keyserver.CertificateLookup) ([]keyserver.Certificate, error) {
	if err := l.reading(); err != nil {
		return nil, err
	}
	list, err := l.Port.FindCertificates(ctx, by, lookup)
	for i := range list {
		if l.spoil != nil && l.writes > 0 {
			l.spoil(&list[i])
		}
	}
	return list, err
}

// invented returns a certificate that is not stored.
func (l *certificateLiar) invented(der []byte) (keyserver.Issued, error) {
	req, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return keyserver.Issued{}, err
	}
	cert, err := l.issuer.IssueClient(req, 0, time.Now(), rand.Reader)
	return keyserver.Issued{Certificate: keyserver.Certificate{DER: cert.Raw}, Issuer: l.issuer.Certificate.Raw}, err
}

func (l *certificateLiar) IssueCertificate(ctx context.Context, by keyserver.Caller, r keyserver.CertificateRequest) (issued keyserver.Issued, err error) {
	err = l.send(func() error { issued, err = l.Port.IssueCertificate(ctx, by, r); return err })
	if l.swallow {
		return l.invented(r.Request)
	}
	return issued, err
}

func (l *certificateLiar) RenewCertificate(ctx context.Context, by keyserver.Caller, d keyserver.Digest) (issued keyserver.Issued, err error) {
	err = l.send(func() error { issued, err = l.Port.RenewCertificate(ctx, by, d); return err })
	if l.swallow {
		old, err := l.Port.FindCertificates(ctx, by, keyserver.CertificateLookup{Digest: &d})
		if err != nil {
			return issued, err
		}
		return l.invented(old[0].Request)
	}
	return issued, err
}

func (l *certificateLiar) EnrollCertificates(ctx context.Context, by keyserver.Caller, n keyserver.Enrolment) (done []keyserver.Enrolled, err error) {
	err = l.send(func() error { done, err = l.Port.EnrollCertificates(ctx, by, n); return err })
	if l.swallow {
		return []keyserver.Enrolled{{Principal: values.IDFromUint64(12345), Created: true}}, nil
	}
	return done, err
}

func (l *certificateLiar) ResetTransportPrincipal(ctx context.Context, by keyserver.Caller, id keyserver.ID) (done keyserver.TransportReset, err error) {
	err = l.send(func() error { done, err = l.Port.ResetTransportPrincipal(ctx, by, id); return err })
	return done, err
}

func (l *certificateLiar) RevocationIssuers(ctx context.Context, by keyserver.Caller) ([]keyserver.RevocationIssuer, error) {
	if err := l.reading(); err != nil {
		return nil, err
	}
	return l.Port.RevocationIssuers(ctx, by)
}

func (l *certificateLiar) RevocationIssuer(ctx context.Context, by keyserver.Caller, digest string) (keyserver.RevocationIssuer, error) {
	if err := l.reading(); err != nil {
		return keyserver.RevocationIssuer{}, err
	}
	return l.Port.RevocationIssuer(ctx, by, digest)
}

func (l *certificateLiar) SetRevocationPolicy(ctx context.Context, by keyserver.Caller, c keyserver.RevocationPolicyChange) error {
	return l.send(func() error { return l.Port.SetRevocationPolicy(ctx, by, c) })
}

func (l *certificateLiar) ImportCRL(ctx context.Context, by keyserver.Caller, der []byte) (digests []string, err error) {
	err = l.send(func() error { digests, err = l.Port.ImportCRL(ctx, by, der); return err })
	if l.swallow {
		issuers, err := l.Port.RevocationIssuers(ctx, by)
		return []string{issuers[0].Digest}, err
	}
	return digests, err
}

func (l *certificateLiar) ExportKey(ctx context.Context, by keyserver.Caller, x keyserver.KeyExport) (keyserver.ExportedKey, error) {
	out, err := l.Port.ExportKey(ctx, by, x)
	if l.clear {
		out.JWE = "the key itself"
	}
	if l.other {
		out.Recipient.ID = values.IDFromUint64(99)
	}
	return out, err
}

// certificateWorld is a key server with a certificateLiar. It has a trusted CA, an issued certificate and an enrolled
// one.
type certificateWorld struct {
	*verified.Service
	liar    *certificateLiar
	admin   keyserver.Caller
	now     time.Time
	ca      pki.Identity
	digest  string
	key     crypto.Signer
	issued  []byte // with a stored request, not enrolled
	agent   keyserver.Principal
	fresh   *x509.Certificate // can be enrolled
	foreign *x509.Certificate // enrolled, without a stored request
	crl     []byte
}

func newCertificateWorld(t *testing.T, f *enginetest.Fixture) *certificateWorld {
	t.Helper()
	honest := verified.New(f.Engine)
	w := &certificateWorld{admin: f.Admin, now: f.Clock.Now()}
	var err error
	w.ca, err = pki.NewCA("outside", w.now.Add(-time.Hour), rand.Reader)
	fatal(t, err)
	w.liar = &certificateLiar{Port: f.Engine, issuer: w.ca}
	w.Service, w.digest = verified.New(w.liar), pki.RevocationDigest(w.ca.Certificate.Raw)
	_, err = honest.AddTrustedCA(ctx, w.admin, w.ca.Certificate.Raw)
	fatal(t, err)
	w.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fatal(t, err)
	issued, err := honest.IssueCertificate(ctx, w.admin, keyserver.CertificateRequest{Request: enginetest.NewRequest(t, "own", w.key), ValidityDays: 30})
	fatal(t, err)
	w.issued = issued.Certificate.DER
	w.foreign = enginetest.NewAgent(t, w.ca, "agent", w.now, nil).Certificate
	w.fresh = enginetest.NewAgent(t, w.ca, "fresh", w.now, nil).Certificate
	enrolled, err := honest.EnrollCertificates(ctx, w.admin, keyserver.Enrolment{Certificates: [][]byte{w.foreign.Raw}})
	fatal(t, err)
	w.agent = enrolled.Principals[0].Principal
	w.crl = enginetest.NewCRL(t, w.ca, 1, w.now, nil)
	return w
}

// certificateWrite is one write. do returns whether the result reports success.
type certificateWrite struct {
	do  func(t *testing.T, w *certificateWorld) (claims bool, err error)
	bad fault.Code
}

var certificateWrites = map[string]certificateWrite{
	"IssueCertificate": {bad: fault.NotSaved, do: func(t *testing.T, w *certificateWorld) (bool, error) {
		r, err := w.IssueCertificate(ctx, w.admin, keyserver.CertificateRequest{Request: enginetest.NewRequest(t, "next", w.key)})
		return r.Saved || len(r.Chain) > 0, err
	}},
	"RenewCertificate": {bad: fault.NotSaved, do: func(_ *testing.T, w *certificateWorld) (bool, error) {
		r, err := w.RenewCertificate(ctx, w.admin, w.issued)
		return r.Saved || len(r.Chain) > 0, err
	}},
	"EnrollCertificates": {bad: fault.NotSaved, do: func(_ *testing.T, w *certificateWorld) (bool, error) {
		r, err := w.EnrollCertificates(ctx, w.admin, keyserver.Enrolment{Certificates: [][]byte{w.fresh.Raw}})
		return r.Saved, err
	}},
	"ResetTransportPrincipal": {bad: fault.NotRemoved, do: func(_ *testing.T, w *certificateWorld) (bool, error) {
		r, err := w.ResetTransportPrincipal(ctx, w.admin, w.agent.ID)
		return r.Reset, err
	}},
	"SetRevocationPolicy": {bad: fault.NotSaved, do: func(_ *testing.T, w *certificateWorld) (bool, error) {
		r, err := w.SetRevocationPolicy(ctx, w.admin, keyserver.RevocationPolicyChange{Digest: w.digest, Policy: keyserver.RevocationPolicy{Mode: keyserver.RevocationRequired, MaxAge: time.Hour}})
		return r.Saved, err
	}},
	"ImportCRL": {bad: fault.NotSaved, do: func(_ *testing.T, w *certificateWorld) (bool, error) {
		r, err := w.ImportCRL(ctx, w.admin, w.crl)
		return r.Saved, err
	}},
}

// TestCertificateWritesAgainstALiar checks the result of every write for each kind of wrong result of the key server.
func TestCertificateWritesAgainstALiar(t *testing.T) {
	gone := fault.New(fault.StoreUnavailable, "gone")
	lies := map[string]struct {
		tell   func(*certificateLiar)
		claims bool
		code   func(certificateWrite) fault.Code
	}{
		"Swallowed":      {func(l *certificateLiar) { l.swallow = true }, false, func(w certificateWrite) fault.Code { return w.bad }},
		"LostAfterwards": {func(l *certificateLiar) { l.dropAfter = errors.New("reset") }, false, func(certificateWrite) fault.Code { return fault.OpFailed }},
		"Unreadable":     {func(l *certificateLiar) { l.readFails = gone }, false, func(certificateWrite) fault.Code { return fault.ReadbackFailed }},
		"Late":           {func(l *certificateLiar) { l.late = time.Millisecond }, true, func(certificateWrite) fault.Code { return "" }},
	}
	for name, tc := range certificateWrites {
		t.Run(name, func(t *testing.T) {
			for lie, l := range lies {
				t.Run(lie, func(t *testing.T) {
					w := newCertificateWorld(t, enginetest.New(t, enginetest.Databases["SQLite"](t)))
					l.tell(w.liar)
					claims, err := tc.do(t, w)
					if claims != l.claims || fault.CodeOf(err) != l.code(tc) {
						t.Errorf("got success %v and %v, want %v and %q", claims, err, l.claims, l.code(tc))
					}
					if w.liar.writes != 1 {
						t.Errorf("%d writes were sent, want 1", w.liar.writes)
					}
				})
			}
		})
	}
}

// TestCertificatesThatReadBackOtherwise checks that a write fails if the stored certificate differs from the request.
func TestCertificatesThatReadBackOtherwise(t *testing.T) {
	other := enginetest.NewAgent(t, mustCA(t), "own", time.Now(), nil).Certificate
	cases := map[string]struct {
		op    string
		spoil func(c *keyserver.Certificate)
	}{
		"AnotherIssuerKeyAndName": {"IssueCertificate", func(c *keyserver.Certificate) { c.DER = other.Raw }},
		"NoBody":                  {"IssueCertificate", func(c *keyserver.Certificate) { c.DER = nil }},
		"RequestNotSaved":         {"IssueCertificate", func(c *keyserver.Certificate) { c.Request = nil }},
		"OldOneStillCurrent":      {"RenewCertificate", func(c *keyserver.Certificate) { c.Status = keyserver.StatusRegular }},
		"EnrolledAndExpired":      {"EnrollCertificates", func(c *keyserver.Certificate) { c.Status = keyserver.StatusExpired }},
		"EnrolledOtherBody":       {"EnrollCertificates", func(c *keyserver.Certificate) { c.DER = other.Raw }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newCertificateWorld(t, enginetest.New(t, enginetest.Databases["SQLite"](t)))
			w.liar.spoil = tc.spoil
			if claims, err := certificateWrites[tc.op].do(t, w); claims || fault.CodeOf(err) != fault.NotSaved {
				t.Errorf("got success %v and %v", claims, err)
			}
		})
	}
}

func mustCA(t *testing.T) pki.Identity {
	t.Helper()
	ca, err := pki.NewCA("somebody", time.Now(), rand.Reader)
	fatal(t, err)
	return ca
}

func TestCertificatesRefusedBeforeSending(t *testing.T) {
	f := enginetest.New(t, enginetest.Databases["SQLite"](t))
	w := newCertificateWorld(t, f)
	system := f.Caller(t, keyserver.CertificatePrincipal, "system").Principal.ID
	request := enginetest.NewRequest(t, "x", w.key)
	broken := append([]byte(nil), request...)
	broken[len(broken)-1] ^= 1
	issue := func(der []byte, days int) func() error {
		return func() error {
			_, err := w.IssueCertificate(ctx, w.admin, keyserver.CertificateRequest{Request: der, ValidityDays: days})
			return err
		}
	}
	renew := func(der []byte) func() error {
		return func() error { _, err := w.RenewCertificate(ctx, w.admin, der); return err }
	}
	enrol := func(ders ...[]byte) func() error {
		return func() error {
			_, err := w.EnrollCertificates(ctx, w.admin, keyserver.Enrolment{Certificates: ders})
			return err
		}
	}
	reset := func(id keyserver.ID) func() error {
		return func() error { _, err := w.ResetTransportPrincipal(ctx, w.admin, id); return err }
	}
	find := func(subject string) func() error {
		return func() error {
			_, bySubject := w.CertificatesBySubject(ctx, w.admin, subject)
			_, exact := w.CertificatesByTransportPrincipal(ctx, w.admin, subject)
			if fault.CodeOf(bySubject) != fault.CodeOf(exact) {
				return errors.Join(bySubject, errors.New("the two lookups differ"))
			}
			return exact
		}
	}
	policy := func(mode keyserver.RevocationMode, age time.Duration) func() error {
		return func() error {
			_, err := w.SetRevocationPolicy(ctx, w.admin, keyserver.RevocationPolicyChange{Digest: w.digest, Policy: keyserver.RevocationPolicy{Mode: mode, MaxAge: age}})
			return err
		}
	}
	export := func(link keyserver.HiddenLink, id keyserver.ID) func() error {
		return func() error {
			_, err := w.ExportKey(ctx, w.admin, keyserver.KeyExport{Link: link, Recipient: keyserver.PrincipalRef{System: 1, ID: id}})
			return err
		}
	}
	cases := map[string]struct {
		reason string
		do     func() error
		code   fault.Code
	}{
		"NoRequest":       {"nothing to sign", issue(nil, 0), fault.BadRequest},
		"BrokenRequest":   {"somebody else's key", issue(broken, 0), fault.BadRequest},
		"NegativeDays":    {"no validity", issue(request, -1), fault.BadRequest},
		"TooManyDays":     {"for ever", issue(request, 3651), fault.BadRequest},
		"RenewNoCert":     {"nothing to renew", renew([]byte("x")), fault.BadRequest},
		"RenewUnknown":    {"established by reading", renew(w.fresh.Raw), fault.NotFound},
		"RenewForeign":    {"nothing to issue it from", renew(w.foreign.Raw), fault.NoSavedRequest},
		"EnrolNone":       {"nothing to enrol", enrol(), fault.BadRequest},
		"EnrolNoCert":     {"no certificate", enrol(w.fresh.Raw, []byte("x")), fault.BadRequest},
		"EnrolTwice":      {"named twice", enrol(w.fresh.Raw, w.fresh.Raw), fault.BadRequest},
		"EnrolTooMany":    {"without bound", enrol(make([][]byte, 65)...), fault.BadRequest},
		"ResetZero":       {"zero names nobody", reset(keyserver.ID{}), fault.BadRequest},
		"ResetUnknown":    {"nobody", reset(values.IDFromUint64(4)), fault.NotFound},
		"ResetPassword":   {"no transport principal", reset(w.admin.Principal.ID), fault.NotFound},
		"ResetSystem":     {"the key server would skip it and report success", reset(system), fault.BuiltInPrincipal},
		"EmptySubject":    {"could mean any", find(""), fault.BadRequest},
		"LongSubject":     {"no certificate has it", find(strings.Repeat("a", 1025)), fault.BadRequest},
		"InvalidSubject":  {"no certificate has it", find("\xff"), fault.BadRequest},
		"UnknownMode":     {"means nothing", policy("maybe", 0), fault.BadRequest},
		"NegativeAge":     {"always stale", policy(keyserver.RevocationRequired, -1), fault.BadRequest},
		"FractionalAge":   {"would be cut", policy(keyserver.RevocationRequired, time.Millisecond), fault.BadRequest},
		"EndlessAge":      {"never stale", policy(keyserver.RevocationRequired, 367*24*time.Hour), fault.BadRequest},
		"ExportEmptyLink": {"an empty link is no wildcard", export("", w.agent.ID), fault.BadRequest},
		"ExportToNobody":  {"zero names nobody", export("\x00\x00\x00\x0112345678", keyserver.ID{}), fault.BadRequest},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := tc.do(); fault.CodeOf(err) != tc.code {
				t.Errorf("%s: got %v, want %s", tc.reason, err, tc.code)
			}
			if w.liar.writes != 0 {
				t.Errorf("%s: something was sent", tc.reason)
			}
		})
	}
}

// TestAnExportInClearIsDropped checks that a response is never returned if it is not a JWE for the recipient.
func TestAnExportInClearIsDropped(t *testing.T) {
	for name, lie := range map[string]func(*certificateLiar){
		"Clear": func(l *certificateLiar) { l.clear = true }, "ForAnother": func(l *certificateLiar) { l.other = true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newCertificateWorld(t, enginetest.New(t, enginetest.Databases["SQLite"](t)))
			key, err := w.MintKey(ctx, w.admin, keyserver.NewKey{Algorithm: keyserver.AES256})
			fatal(t, err)
			out, err := w.ExportKey(ctx, w.admin, keyserver.KeyExport{Link: key.Link, Recipient: w.agent.Ref()})
			if err != nil || strings.Count(out.JWE, ".") != 4 {
				t.Fatalf("the honest answer: %v", err)
			}
			lie(w.liar)
			if out, err := w.ExportKey(ctx, w.admin, keyserver.KeyExport{Link: key.Link, Recipient: w.agent.Ref()}); fault.CodeOf(err) != fault.OpFailed || out.JWE != "" {
				t.Errorf("got %q, %v", out.JWE, err)
			}
		})
	}
}
