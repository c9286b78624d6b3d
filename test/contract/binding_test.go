package contract

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// sendWithHost sends a request whose Host differs from the host of the connection.
func (s *subject) sendWithHost(t testing.TB, host, authorization, path, proof string) rig.Answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+path, nil)
	rig.Must(t, err)
	req.Host = host
	req.Header.Set("Authorization", authorization)
	req.Header["DPoP"] = []string{proof}
	a, err := s.SendRequest(req)
	rig.Must(t, err)
	return a
}

// TestProofsForTheNamesOfTheServer checks that proofs must contain a configured name of the server, not the Host of the
// request. A relay could choose the Host.
func TestProofsForTheNamesOfTheServer(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		h := newHolder(t)
		s.bind(t, h)
		port := s.Address()[strings.LastIndexByte(s.Address(), ':')+1:]
		for url, taken := range map[string]bool{
			"https://127.0.0.1:" + port:         true,
			"https://localhost:" + port:         true,
			"https://LocalHost.:" + port:        true,
			"https://[::1]:" + port:             true,
			"https://[0:0::0:1]:" + port:        true,
			"https://test:" + port:              true, // name from --server-name
			"https://elsewhere.example:" + port: false,
			"https://elsewhere.example":         false,
			"https://localhost":                 false,
			"https://localhost:1":               false,
			"http://localhost:" + port:          false,
			"https://a.localhost:" + port:       false,
			"https://127.0.0.2:" + port:         false,
		} {
			host := strings.TrimPrefix(strings.TrimPrefix(url, "https://"), "http://")
			for _, called := range []string{host, "127.0.0.1:" + port} {
				a := s.sendWithHost(t, called, "Bearer "+h.session, where, h.proof(t, "GET", url+where))
				if taken {
					is(t, a, http.StatusOK, "")
				} else {
					is(t, a, http.StatusUnauthorized, "PROOF_URI_MISMATCH")
				}
				if t.Failed() {
					t.Fatalf("a proof for %s, called %s", url, called)
				}
			}
		}
	})
}

// TestProofsWithoutTLS checks that without TLS only loopback names are valid in proofs.
func TestProofsWithoutTLS(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { c.InsecureHTTP = true })
	h := newHolder(t)
	login := func(url string) rig.Answer {
		a, err := s.SendRequest(s.loginWith(t, h.proof(t, "POST", url+"/api/sessions")))
		rig.Must(t, err)
		return a
	}
	port := s.Address()[strings.LastIndexByte(s.Address(), ':')+1:]
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]"} {
		is(t, login("http://"+host+":"+port), http.StatusOK, "")
	}
	for _, url := range []string{"http://elsewhere.example:" + port, "https://127.0.0.1:" + port, "http://127.0.0.1", "http://10.0.0.1:" + port} {
		is(t, login(url), http.StatusUnauthorized, "PROOF_URI_MISMATCH")
	}
}

// loginWith returns a login request with a proof.
func (s *subject) loginWith(t testing.TB, proof string) *http.Request {
	t.Helper()
	body := `{"method": "password", "name": "` + s.Administrator.Name + `", "password": "` + s.Administrator.Password + `"}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+"/api/sessions", strings.NewReader(body))
	rig.Must(t, err)
	req.Header["DPoP"] = []string{proof}
	return req
}

func mismatched(t testing.TB, a rig.Answer) {
	t.Helper()
	is(t, a, http.StatusUnauthorized, "CERTIFICATE_MISMATCH")
	if a.Body["reauth"] != true || !strings.Contains(a.Header.Get("WWW-Authenticate"), `error="invalid_token"`) {
		t.Errorf("a new login is what helps, and %s does not say so: %q", a.Raw, a.Header.Get("WWW-Authenticate"))
	}
}

// TestCertificateSessionsAreBound checks that a session opened with a certificate works only over connections
// with that certificate. The session id alone is not enough, nor is another certificate of the same principal.
func TestCertificateSessionsAreBound(t *testing.T) {
	replicated(t, func(t *testing.T, s, other *subject) {
		outside := newCA(t, s.name("outside"))
		s.trustIssuer(t, outside)
		agent := s.agent(t, outside, "agent")
		renewed := enginetest.NewAgent(t, outside, s.name("agent"), time.Now(), nil)
		s.enroll(t, renewed.Certificate.Raw)
		stranger := s.agent(t, outside, "stranger")
		sum := sha256.Sum256(agent.Certificate.Raw)

		opened := s.showing(t, agent).OK(t, "", "POST", "/api/sessions", certificateLogin)
		session := opened.Text(t, "sessionId")
		if opened.Body["boundCertificate"] != hex.EncodeToString(sum[:]) {
			t.Errorf("bound to another certificate: %s", opened.Raw)
		}
		for _, at := range []*subject{s, other} {
			at.showing(t, agent).OK(t, session, "GET", where, nil)
			mismatched(t, at.Send(t, session, "GET", where, nil))
			mismatched(t, at.showing(t, renewed).Send(t, session, "GET", where, nil))
			mismatched(t, at.showing(t, stranger).Send(t, session, "GET", where, nil))
			at.showing(t, agent).OK(t, session, "GET", where, nil) // the failed requests do not end the session
		}
		again := s.showing(t, renewed)
		again.OK(t, again.login(t), "GET", where, nil)
		mismatched(t, s.Send(t, session, "DELETE", where, nil))

		rows := s.OK(t, s.AsAdmin(t), "GET", s.trail("operation=proof&reason=certificateMismatch&limit=1000"), nil).List(t, "entries")
		if len(rows) != 7 || rows[0]["outcome"] != "refused" || rows[0]["session"] != opened.Text(t, "id") || rows[0]["sessionKind"] != "certificate" {
			t.Errorf("got %d rows: %v", len(rows), rows)
		}
		listed := s.OK(t, s.AsAdmin(t), "GET", "/api/sessions?principalId="+s.principalNamed(t, "/CN=agent"), nil).List(t, "sessions")
		if len(listed) != 2 || listed[0]["boundCertificate"] == nil || listed[1]["boundCertificate"] == nil {
			t.Errorf("listed as %v", listed)
		}
		if plain := s.OK(t, s.AsAdmin(t), "GET", where, nil); plain.Body["boundCertificate"] != nil {
			t.Errorf("a session of a password: %s", plain.Raw)
		}
	})
}

// TestCertificateSessionsWithAKey checks that a session bound to a certificate and a key requires both.
func TestCertificateSessionsWithAKey(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		outside := newCA(t, s.name("outside"))
		s.trustIssuer(t, outside)
		with, h := s.showing(t, s.agent(t, outside, "agent")), newHolder(t)
		a := with.prove(t, "", "POST", "/api/sessions", certificateLogin, h.proof(t, "POST", s.URL()+"/api/sessions"))
		is(t, a, http.StatusOK, "")
		h.session = a.Text(t, "sessionId")
		bearer := "Bearer " + h.session
		is(t, with.prove(t, bearer, "GET", where, nil), http.StatusUnauthorized, "PROOF_REQUIRED")
		proof := h.proof(t, "GET", s.URL()+where)
		mismatched(t, s.prove(t, bearer, "GET", where, nil, proof))
		is(t, with.prove(t, bearer, "GET", where, nil, proof), http.StatusOK, "") // not marked as used by the refusal
	})
}

// TestSessionsFromCertificateSessions checks a session that is derived from a certificate session. It needs the same
// certificate, unless it is bound to a key: browsers have no certificate.
func TestSessionsFromCertificateSessions(t *testing.T) {
	replicated(t, func(t *testing.T, s, other *subject) {
		outside := newCA(t, s.name("outside"))
		s.trustIssuer(t, outside)
		agent := s.agent(t, outside, "agent", keyserver.RoleExchanger)
		with := s.showing(t, agent)
		session := with.login(t)
		boss := s.principal(t, "boss", keyserver.RoleExchanger)
		s.flags(t, boss, rig.Object{"delegation": true})
		link := s.mint(t, "key")

		mismatched(t, s.Send(t, session, "POST", "/api/sessions", delegated(boss)))
		mismatched(t, s.Send(t, session, "POST", "/api/sessions", scoped(link)))
		lent := with.OK(t, session, "POST", "/api/sessions", delegated(boss)).Text(t, "sessionId")
		narrow := with.OK(t, session, "POST", "/api/sessions", scoped(link)).Text(t, "sessionId")
		for _, made := range []string{lent, narrow} {
			other.showing(t, agent).OK(t, made, "GET", where, nil)
			mismatched(t, s.Send(t, made, "GET", where, nil))
			mismatched(t, other.Send(t, made, "GET", where, nil))
		}
		h := newHolder(t)
		a := with.OK(t, session, "POST", "/api/sessions", join(rig.Object{"dpopJkt": h.thumbprint(t)}, scoped(link)))
		h.session = a.Text(t, "sessionId")
		is(t, other.prove(t, "Bearer "+h.session, "GET", where, nil, h.proof(t, "GET", other.URL()+where)), http.StatusOK, "")
		is(t, s.prove(t, "Bearer "+h.session, "GET", where, nil), http.StatusUnauthorized, "PROOF_REQUIRED")
		if a.Body["boundCertificate"] != nil {
			t.Errorf("bound to both: %s", a.Raw)
		}
	})
}

// weakCA returns a self-signed CA certificate with a key and a signature algorithm. With 0, it uses the default
// algorithm.
func weakCA(t testing.TB, name string, key crypto.Signer, over x509.SignatureAlgorithm) []byte {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, SignatureAlgorithm: over,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	rig.Must(t, err)
	return der
}

// TestWeakCAsAreNotTrusted checks that CAs with weak keys or signatures are rejected, and that the error names
// the weakness.
func TestWeakCAsAreNotTrusted(t *testing.T) {
	t.Setenv("GODEBUG", "rsa1024min=0") // to create a short key
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	rig.Must(t, err)
	long, err := rsa.GenerateKey(rand.Reader, 2048)
	rig.Must(t, err)
	narrow, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	rig.Must(t, err)
	good, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	rig.Must(t, err)
	t.Run(embeddedSQLite, func(t *testing.T) { // not parallel, because it sets an environment variable
		s := start(t)
		for name, tc := range map[string]struct {
			der  []byte
			says string
		}{
			"RSA1024":   {weakCA(t, "RSA1024", short, 0), "1024"},
			"P224":      {weakCA(t, "P224", narrow, 0), "224"},
			"SHA1RSA":   {weakCA(t, "SHA1RSA", long, x509.SHA1WithRSA), "SHA1-RSA"},
			"SHA1ECDSA": {weakCA(t, "SHA1ECDSA", good, x509.ECDSAWithSHA1), "ECDSA-SHA1"},
		} {
			a := s.Refused(t, s.AsAdmin(t), "POST", "/api/trusted-cas", rig.Object{"certificate": b64(tc.der)}, http.StatusBadRequest, "INVALID_ARGUMENT")
			if detail := a.Text(t, "detail"); !strings.Contains(detail, tc.says) || !strings.Contains(detail, "/CN="+name) {
				t.Errorf("%s: does not say what is weak: %s", name, detail)
			}
		}
		for name, key := range map[string]crypto.Signer{"RSA2048": long, "P256": good} {
			s.OK(t, s.AsAdmin(t), "POST", "/api/trusted-cas", rig.Object{"certificate": b64(weakCA(t, name, key, 0))})
		}
	})
}

// TestRequireProof checks that --require-proof refuses logins without a proof or a certificate: with "people" the
// methods password and ldap, with "all" every login.
func TestRequireProof(t *testing.T) {
	t.Parallel()
	for demand, refused := range map[string]map[string]bool{
		"off": {}, "people": {"password": true, "ldap": true}, "all": {"password": true, "ldap": true, "kubernetes": true},
	} {
		t.Run(demand, func(t *testing.T) {
			test := func(t *testing.T, s *subject) {
				for method, body := range map[string]rig.Object{
					"password": {"method": "password", "name": "nobody", "password": "wrong password"},
					"ldap":     {"method": "ldap", "name": "nobody", "password": "wrong password"}, "kubernetes": {"method": "kubernetes", "token": "x.y.z"},
				} {
					// The errors of the methods other than password, because no provider is configured.
					status, code := http.StatusBadRequest, "BAD_REQUEST"
					if method == "password" {
						status, code = http.StatusUnauthorized, "INVALID_CREDENTIALS"
					}
					if !refused[method] {
						s.Refused(t, "", "POST", "/api/sessions", body, status, code)
						continue
					}
					is(t, s.Send(t, "", "POST", "/api/sessions", body), http.StatusUnauthorized, "PROOF_REQUIRED")
					a := s.prove(t, "", "POST", "/api/sessions", body, newHolder(t).proof(t, "POST", s.URL()+"/api/sessions"))
					is(t, a, status, code)
				}
				h := newHolder(t)
				s.bind(t, h)
				if demand == "off" {
					s.AsAdmin(t)
					return
				}
				is(t, s.Send(t, "", "POST", "/api/sessions", s.loginBody()), http.StatusUnauthorized, "PROOF_REQUIRED") // correct, but the error hides this
				made := s.prove(t, "Bearer "+h.session, "POST", "/api/sessions", scoped("AAAAAQECAwQFBgcI"), h.proof(t, "POST", s.URL()+"/api/sessions"))
				is(t, made, http.StatusOK, "") // bound to the same key as its parent session
				audit := s.prove(t, "Bearer "+h.session, "GET", s.trail("operation=login&reason=proofRequired"), nil, h.proof(t, "GET", s.URL()+"/api/audit"))
				is(t, audit, http.StatusOK, "")
				if rows := audit.List(t, "entries"); len(rows) == 0 || rows[0]["outcome"] != "refused" {
					t.Errorf("audited as %v", rows)
				}
			}
			if demand == "off" {
				embedded(t, test)
			} else {
				ownEmbedded(t, test, func(c *server.Config) { c.RequireProof = demand })
			}
		})
	}
}

// TestRequireProofOfCertificates checks that a certificate satisfies each value of --require-proof. So does the key
// that a derived credential is bound to.
func TestRequireProofOfCertificates(t *testing.T) {
	ownEmbedded(t, func(t *testing.T, s *subject) {
		outside := newCA(t, s.name("outside"))
		s.trustIssuer(t, outside)
		with, link := s.showing(t, s.agent(t, outside, "agent")), s.mint(t, "key")
		plain := s.AsAdmin(t)
		s.Stop(t)
		s.Restart(t, func(c *server.Config) { c.RequireProof = "all" })
		s.HTTP.CloseIdleConnections()
		session := with.login(t)
		with.OK(t, session, "POST", "/api/sessions", scoped(link))
		s.OK(t, plain, "GET", where, nil) // opened before the flag was set, it stays valid until it ends
		is(t, s.Send(t, plain, "POST", "/api/sessions", scoped(link)), http.StatusUnauthorized, "PROOF_REQUIRED")
		s.OK(t, plain, "POST", "/api/sessions", join(rig.Object{"dpopJkt": newHolder(t).thumbprint(t)}, scoped(link)))
	})
}
