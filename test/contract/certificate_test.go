package contract

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/smallstep/pkcs7"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

func unb64(t testing.TB, s string) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func pemOf(label string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der}))
}

func newKey(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// trustIssuer adds a CA to the trust list and returns its revocation digest.
func (s *subject) trustIssuer(t testing.TB, ca pki.Identity) string {
	t.Helper()
	s.OK(t, s.AsAdmin(t), "POST", "/api/trusted-cas", rig.Object{"certificate": b64(ca.Certificate.Raw)})
	return pki.RevocationDigest(ca.Certificate.Raw)
}

// issue requests a certificate and returns its DER.
func (s *subject) issue(t testing.TB, commonName string, key crypto.Signer) []byte {
	t.Helper()
	a := s.OK(t, s.AsAdmin(t), "POST", "/api/certificates", rig.Object{"request": b64(enginetest.NewRequest(t, s.name(commonName), key))})
	return unb64(t, a.Text(t, "certificate"))
}

// enroll enrols certificates and returns the principals.
func (s *subject) enroll(t testing.TB, ders ...[]byte) []rig.Object {
	t.Helper()
	spelled := make([]string, len(ders))
	for i, der := range ders {
		spelled[i] = b64(der)
	}
	return s.OK(t, s.AsAdmin(t), "POST", "/api/certificates/enroll", rig.Object{"certificates": spelled}).List(t, "principals")
}

// leaf parses a chain in the format of contract 12.4. It returns the leaf certificate and its issuer.
func leaf(t testing.TB, chain string) (leaf *x509.Certificate, issuer *x509.Certificate) {
	t.Helper()
	p7, err := pkcs7.Parse(unb64(t, chain))
	if err != nil || len(p7.Certificates) != 2 {
		t.Fatalf("the chain is not two certificates in PKCS#7: %v", err)
	}
	leaf, issuer = p7.Certificates[0], p7.Certificates[1]
	if leaf.IsCA {
		leaf, issuer = issuer, leaf
	}
	if err := leaf.CheckSignatureFrom(issuer); err != nil {
		t.Error(err)
	}
	return leaf, issuer
}

// badRequest is one bad request and the expected error.
type badRequest struct {
	body   any
	status int
	code   string
	names  string // text that the detail must contain
}

func (s *subject) badRequests(t *testing.T, session, method, path string, cases map[string]badRequest) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := s.Refused(t, session, method, path, tc.body, tc.status, tc.code)
			if detail, _ := a.Body["detail"].(string); !strings.Contains(detail, tc.names) {
				t.Errorf("the detail %q does not name %q", detail, tc.names)
			}
		})
	}
}

// TestIssueCertificate checks POST /api/certificates: it issues a certificate from a PKCS#10 request and saves
// the request. Issuing does not enrol.
func TestIssueCertificate(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		const path = "/api/certificates"
		key := newKey(t)
		request := enginetest.NewRequest(t, s.name("agent"), key)
		broken := bytes.Clone(request)
		broken[len(broken)-1] ^= 1
		s.badRequests(t, s.AsAdmin(t), "POST", path, map[string]badRequest{
			"NoRequest":      {rig.Object{}, 400, "BAD_REQUEST", "request"},
			"NoBase64":       {rig.Object{"request": "x"}, 400, "BAD_REQUEST", "request"},
			"NoPKCS10":       {rig.Object{"request": b64([]byte("nothing"))}, 400, "BAD_REQUEST", "request"},
			"TwoPEMs":        {rig.Object{"request": strings.Repeat(pemOf("CERTIFICATE REQUEST", request), 2)}, 400, "BAD_REQUEST", "request"},
			"WrongSignature": {rig.Object{"request": b64(broken)}, 400, "BAD_REQUEST", "signature"},
			"NoSubject":      {rig.Object{"request": b64(enginetest.NewRequest(t, "", key))}, 400, "BAD_REQUEST", "subject"},
			"ZeroDays":       {rig.Object{"request": b64(request), "validityDays": 0}, 400, "BAD_REQUEST", "validityDays"},
			"TooManyDays":    {rig.Object{"request": b64(request), "validityDays": 3651}, 400, "BAD_REQUEST", "validityDays"},
			"NameOfTheCA":    {rig.Object{"request": b64(enginetest.NewRequest(t, internalCA(t, s).Subject.CommonName, key))}, 400, "INVALID_ARGUMENT", "subject"},
		})
		for _, role := range []keyserver.ID{keyserver.RoleSecurityOfficer, keyserver.RoleAuditor, keyserver.RoleEncryptor} {
			s.Refused(t, s.with(t, role), "POST", path, rig.Object{"request": b64(request)}, http.StatusForbidden, "ACCESS_DENIED")
		}

		for form, spelled := range map[string]string{
			"base64": b64(request), "PEM": pemOf("CERTIFICATE REQUEST", request), "base64 of PEM": b64([]byte(pemOf("CERTIFICATE REQUEST", request))),
		} {
			a := s.OK(t, s.AsAdmin(t), "POST", path, rig.Object{"request": spelled, "validityDays": 10})
			cert, issuer := leaf(t, a.Text(t, "chain"))
			if b64(cert.Raw) != a.Text(t, "certificate") || !bytes.Equal(issuer.Raw, internalCA(t, s).Raw) || a.Body["saved"] != true {
				t.Errorf("%s: chain and certificate disagree: %s", form, a.Raw)
			}
			digest := sha256.Sum256(cert.Raw)
			if a.Text(t, "certificateId") != hex.EncodeToString(digest[:8]) {
				t.Errorf("%s: the digest id is %s", form, a.Text(t, "certificateId"))
			}
			if !cert.PublicKey.(*ecdsa.PublicKey).Equal(key.Public()) || cert.Subject.CommonName != s.name("agent") || cert.NotAfter.After(time.Now().Add(10*24*time.Hour)) {
				t.Errorf("%s: issued for %s until %s", form, cert.Subject, cert.NotAfter)
			}
		}
		found := s.OK(t, s.AsAdmin(t), "POST", "/api/certificates/by-subject", rig.Object{"subject": s.name("/CN=agent"), "includeBodies": true})
		if found.Body["count"] != 3.0 || found.List(t, "certificates")[0]["request"] != b64(request) || found.List(t, "certificates")[0]["statusLabel"] != "Saved request" {
			t.Errorf("the request is not saved: %s", found.Raw)
		}
		found = s.OK(t, s.AsAdmin(t), "POST", "/api/certificates/by-transport-principal", rig.Object{"subject": s.name("/CN=agent")})
		if found.Body["count"] != 0.0 {
			t.Errorf("issuing enrolled: %s", found.Raw)
		}
	})
}

// internalCA returns the internal CA certificate from the server's file ca.crt.
func internalCA(t testing.TB, s *subject) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(s.CA(t))
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// TestEnrollRefusals checks INVALID_ARGUMENT of POST /api/certificates/enroll for a certificate without
// digitalSignature or clientAuth, and for an expired certificate. If one of several certificates is bad, none is
// enrolled.
func TestEnrollRefusals(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		const path = "/api/certificates/enroll"
		ca := newCA(t, s.name("outside"))
		s.trustIssuer(t, ca)
		now := time.Now()
		spelled := func(ca pki.Identity, change func(*x509.Certificate)) string {
			return b64(enginetest.NewAgent(t, ca, s.name("agent"), now, change).Certificate.Raw)
		}
		good := spelled(ca, nil)
		for name, bad := range map[string]string{
			"NoDigitalSignature": spelled(ca, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyAgreement }),
			"NoClientAuth":       spelled(ca, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }),
			"Expired":            spelled(ca, func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Second) }),
			"IssuerNotTrusted":   spelled(newCA(t, s.name("outside")), nil),
			"CA":                 b64(ca.Certificate.Raw),
		} {
			t.Run(name, func(t *testing.T) {
				s.Refused(t, s.AsAdmin(t), "POST", path, rig.Object{"certificates": []string{bad}}, 400, "INVALID_ARGUMENT")
				s.Refused(t, s.AsAdmin(t), "POST", path, rig.Object{"certificates": []string{good, bad}}, 400, "INVALID_ARGUMENT")
				found := s.OK(t, s.AsAdmin(t), "POST", "/api/certificates/by-subject", rig.Object{"subject": s.name("%")})
				if found.Body["count"] != 0.0 {
					t.Errorf("something was kept: %s", found.Raw)
				}
			})
		}
		s.badRequests(t, s.AsAdmin(t), "POST", path, map[string]badRequest{
			"None":        {rig.Object{"certificates": []string{}}, 400, "BAD_REQUEST", "certificates"},
			"OneString":   {rig.Object{"certificates": good}, 400, "BAD_REQUEST", "certificates"},
			"NotOne":      {rig.Object{"certificates": []string{good, b64([]byte("x"))}}, 400, "BAD_REQUEST", "certificates[1]"},
			"Twice":       {rig.Object{"certificates": []string{good, good}}, 400, "BAD_REQUEST", "certificates[1]"},
			"UnknownRole": {rig.Object{"certificates": []string{good}, "roleIds": []string{"00000000deadbeef"}}, 400, "INVALID_ARGUMENT", "roleIds"},
		})
		for _, role := range []keyserver.ID{keyserver.RoleSecurityOfficer, keyserver.RoleAuditor, keyserver.RoleExchanger} {
			s.Refused(t, s.with(t, role), "POST", path, rig.Object{"certificates": []string{good}}, http.StatusForbidden, "ACCESS_DENIED")
		}
	})
}

// TestEnroll checks POST /api/certificates/enroll. It creates one certificate principal per subject, named by the slash
// form of the subject. It does not set the delegation flag.
func TestEnroll(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		ca := newCA(t, s.name("outside"))
		s.trustIssuer(t, ca)
		first, second := enginetest.NewAgent(t, ca, s.name("a/b"), time.Now(), nil).Certificate.Raw, enginetest.NewAgent(t, ca, s.name("a/b"), time.Now(), nil).Certificate.Raw
		own := s.issue(t, "own", newKey(t))
		a := s.OK(t, s.AsAdmin(t), "POST", "/api/certificates/enroll", rig.Object{
			"certificates": []string{b64(first), pemOf("CERTIFICATE", second), b64(own)}, "roleIds": []string{keyserver.RoleExchanger.Hex()},
		})
		principals := a.List(t, "principals")
		if a.Body["saved"] != true || len(principals) != 2 || principals[0]["name"] != s.name(`/CN=a\/b`) || principals[0]["created"] != true ||
			principals[0]["className"] != "CertificatePrincipal" || principals[0]["disabled"] != false {
			t.Fatalf("enrolled as %s", a.Raw)
		}
		if certs, _ := principals[0]["certificates"].([]any); len(certs) != 2 {
			t.Errorf("one principal per subject: %s", a.Raw)
		}
		id, err := schema.ParseHexID(principals[0]["id"].(string))
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.Admin(t).GetPrincipal(t.Context(), schema.ByID{ID: id})
		if err != nil || len(p.RoleIDs) != 1 {
			t.Errorf("reads back as %+v, %v", p, err)
		}
		if again := s.enroll(t, first); again[0]["id"] != principals[0]["id"] || again[0]["created"] != false {
			t.Errorf("again: %v", again)
		}
		s.Refused(t, s.AsAdmin(t), "POST", "/api/certificates/enroll",
			rig.Object{"certificates": []string{b64(first)}, "roleIds": []string{keyserver.RoleAuditor.Hex()}}, http.StatusConflict, "ALREADY_EXISTS")
	})
}

// TestRenewCertificate checks POST /api/certificates/renew: it selects by digest and uses the saved request.
// The old certificate becomes Expired. The response has the new chain and digest id.
func TestRenewCertificate(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		const path = "/api/certificates/renew"
		ca := newCA(t, s.name("outside"))
		s.trustIssuer(t, ca)
		foreign := enginetest.NewAgent(t, ca, s.name("foreign"), time.Now(), nil).Certificate.Raw
		s.enroll(t, foreign)
		key := newKey(t)
		old := s.issue(t, "agent", key)
		s.badRequests(t, s.AsAdmin(t), "POST", path, map[string]badRequest{
			"NoCertificate":  {rig.Object{}, 400, "BAD_REQUEST", "certificate"},
			"NotOne":         {rig.Object{"certificate": b64([]byte("x"))}, 400, "BAD_REQUEST", "certificate"},
			"Unknown":        {rig.Object{"certificate": b64(ca.Certificate.Raw)}, 404, "NOT_FOUND", ""},
			"NoSavedRequest": {rig.Object{"certificate": b64(foreign)}, 409, "NO_SAVED_REQUEST", "reset"},
		})
		for _, role := range []keyserver.ID{keyserver.RoleSecurityOfficer, keyserver.RoleAuditor, keyserver.RoleEncryptor, keyserver.RoleExchanger} {
			s.Refused(t, s.with(t, role), "POST", path, rig.Object{"certificate": b64(old)}, http.StatusForbidden, "ACCESS_DENIED")
		}

		enrolled := s.enroll(t, old)[0]
		a := s.OK(t, s.AsAdmin(t), "POST", path, rig.Object{"certificate": pemOf("CERTIFICATE", old)})
		cert, _ := leaf(t, a.Text(t, "chain"))
		digest := sha256.Sum256(cert.Raw)
		if a.Text(t, "certificateId") != hex.EncodeToString(digest[:8]) || a.Body["certificateIdBytes"] != 8.0 || a.Text(t, "detail") == "" {
			t.Errorf("answered %s", a.Raw)
		}
		if !cert.PublicKey.(*ecdsa.PublicKey).Equal(key.Public()) || cert.Subject.CommonName != s.name("agent") {
			t.Errorf("renewed for %s", cert.Subject)
		}
		found := s.OK(t, s.AsAdmin(t), "POST", "/api/certificates/by-transport-principal", rig.Object{"subject": s.name("/CN=agent"), "includeBodies": true})
		labels := map[any]any{}
		for _, c := range found.List(t, "certificates") {
			labels[c["certificate"]] = c["statusLabel"]
		}
		if labels[b64(old)] != "Expired" || labels[b64(cert.Raw)] != "Regular" || found.Body["principalId"] != enrolled["principalId"] {
			t.Errorf("afterwards: %s", found.Raw)
		}
		// The old certificate is not found, because it is no longer current.
		s.Refused(t, s.AsAdmin(t), "POST", path, rig.Object{"certificate": b64(old)}, http.StatusNotFound, "NOT_FOUND")
		s.OK(t, s.AsAdmin(t), "POST", path, rig.Object{"certificate": b64(cert.Raw)})
	})
}

// TestCertificatesBySubject checks POST /api/certificates/by-subject: % is the wildcard, and every other
// character is literal.
func TestCertificatesBySubject(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		const path = "/api/certificates/by-subject"
		s.badRequests(t, s.AsAdmin(t), "POST", path, map[string]badRequest{
			"Absent":  {rig.Object{}, 400, "BAD_REQUEST", "subject"},
			"Empty":   {rig.Object{"subject": ""}, 400, "BAD_REQUEST", "subject"},
			"Long":    {rig.Object{"subject": strings.Repeat("a", 1025)}, 400, "BAD_REQUEST", "subject"},
			"Number":  {rig.Object{"subject": 1}, 400, "BAD_REQUEST", "subject"},
			"Include": {rig.Object{"subject": "x", "includeBodies": "yes"}, 400, "BAD_REQUEST", "includeBodies"},
		})
		s.Refused(t, s.with(t, keyserver.RoleExchanger), "POST", path, rig.Object{"subject": "%"}, http.StatusForbidden, "ACCESS_DENIED")
		key := newKey(t)
		for _, name := range []string{"web_1", "webx1", "WEB_1", "db%", "db1"} {
			s.issue(t, name, key)
		}
		for pattern, want := range map[string]float64{
			s.name("/CN=web_1"): 1, "/CN=web%": 2, s.name("%1"): 4, "/CN=db%": 2, s.name("%"): 5, s.name("%_%"): 2, s.name("/CN=web"): 0, "/cn=web%": 0, s.name("/CN=web_"): 0,
		} {
			for _, role := range []keyserver.ID{keyserver.RoleAuditor, keyserver.RoleSecurityOfficer} {
				a := s.OK(t, s.with(t, role), "POST", path, rig.Object{"subject": pattern})
				if a.Body["count"] != want || float64(len(a.List(t, "certificates"))) != want || a.Body["lookup"] != "by-subject" || a.Body["bodiesIncluded"] != false {
					t.Errorf("%s: got %s, want %v", pattern, a.Raw, want)
				}
			}
		}
	})
}

// TestCertificatesByTransportPrincipal checks POST /api/certificates/by-transport-principal: the name must
// match exactly, without a wildcard. It checks every field of the response and of a certificate.
func TestCertificatesByTransportPrincipal(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		const path = "/api/certificates/by-transport-principal"
		s.badRequests(t, s.AsAdmin(t), "POST", path, map[string]badRequest{
			"Absent": {rig.Object{}, 400, "BAD_REQUEST", "subject"}, "Empty": {rig.Object{"subject": ""}, 400, "BAD_REQUEST", "subject"},
		})
		s.Refused(t, s.with(t, keyserver.RoleEncryptor), "POST", path, rig.Object{"subject": "/CN=agent"}, http.StatusForbidden, "ACCESS_DENIED")
		ca := newCA(t, s.name("outside"))
		s.trustIssuer(t, ca)
		cert := enginetest.NewAgent(t, ca, s.name("agent"), time.Now(), nil).Certificate
		p := s.enroll(t, cert.Raw)[0]
		name := s.name("/CN=agent")
		for _, subject := range []string{name[:len(name)-1], name + "%", "%", "/cn" + name[3:], name + " ", name[1:]} {
			a := s.OK(t, s.AsAdmin(t), "POST", path, rig.Object{"subject": subject})
			if a.Body["count"] != 0.0 || a.Body["matched"] != "byte-exact, NO WILDCARD" {
				t.Errorf("%q: %s", subject, a.Raw)
			}
			if a.Text(t, "wildcardEquivalent", "path") != "/api/certificates/by-subject" || a.Text(t, "wildcardEquivalent", "subject") != subject+"%" {
				t.Errorf("%q: %s", subject, a.Raw)
			}
			if _, there := a.Body["principalId"]; there {
				t.Errorf("%q: a principal of nobody's certificates: %s", subject, a.Raw)
			}
		}
		for _, bodies := range []bool{false, true} {
			a := s.OK(t, s.AsAdmin(t), "POST", path, rig.Object{"subject": name, "includeBodies": bodies})
			if a.Body["lookup"] != "by-transport-principal" || a.Body["systemId"] != 1.0 || a.Body["principalId"] != p["principalId"] ||
				a.Body["subject"] != name || a.Body["count"] != 1.0 || a.Body["bodiesIncluded"] != bodies {
				t.Fatalf("answered %s", a.Raw)
			}
			c := a.List(t, "certificates")[0]
			sum := sha256.Sum256(cert.Raw)
			want := rig.Object{
				"certificateId": b64(sum[:8]), "className": "Certificate", "subject": name, "issuer": s.name("/CN=outside"),
				"publicKeyType": "EC P-256", "serialNumber": b64(cert.SerialNumber.Bytes()), "certHash": b64(sum[:]),
				"effectiveDate": cert.NotBefore.Format(time.RFC3339), "expirationDate": cert.NotAfter.Format(time.RFC3339),
				"status": float64(keyserver.StatusRegular), "statusLabel": "Regular",
			}
			if bodies {
				want["certificate"] = b64(cert.Raw)
			}
			for field, value := range want {
				if c[field] != value {
					t.Errorf("%s is %v, want %v", field, c[field], value)
				}
			}
			if len(c) != len(want) {
				t.Errorf("has other fields than %v: %v", want, c)
			}
		}
	})
}

// TestResetTransportPrincipal checks POST /api/transport-principals/reset: it removes the certificates, so that
// the principal can enrol again. It refuses a system-defined principal.
func TestResetTransportPrincipal(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		const path = "/api/transport-principals/reset"
		s.badRequests(t, s.AsAdmin(t), "POST", path, map[string]badRequest{
			"Absent":  {rig.Object{}, 400, "BAD_REQUEST", "principalId"},
			"Decimal": {rig.Object{"principalId": "12"}, 400, "BAD_REQUEST", "principalId"},
			"Zero":    {rig.Object{"principalId": "0000000000000000"}, 400, "BAD_REQUEST", "principalId"},
			"Nobody":  {rig.Object{"principalId": "00000000deadbeef"}, 404, "NOT_FOUND", ""},
			"System":  {rig.Object{"principalId": s.systemDefined(t)}, 403, "BUILT_IN_PRINCIPAL", "system"},
		})
		cert := s.issue(t, "agent", newKey(t))
		id := s.enroll(t, cert)[0]["id"]
		s.Refused(t, s.with(t, keyserver.RoleSecurityOfficer), "POST", path, rig.Object{"principalId": id}, http.StatusForbidden, "ACCESS_DENIED")
		a := s.OK(t, s.AsAdmin(t), "POST", path, rig.Object{"principalId": id})
		if a.Body["reset"] != true || a.Body["certificatesRemoved"] != 1.0 || a.At(t, "principal", "id") != id || a.Text(t, "detail") == "" {
			t.Errorf("answered %s", a.Raw)
		}
		if found := s.OK(t, s.AsAdmin(t), "POST", "/api/certificates/by-subject", rig.Object{"subject": s.name("/CN=agent")}); found.Body["count"] != 0.0 {
			t.Errorf("still there: %s", found.Raw)
		}
		if again := s.enroll(t, cert)[0]; again["id"] != id || again["created"] != false {
			t.Errorf("enrolled anew as %v", again)
		}
	})
}
