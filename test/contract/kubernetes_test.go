package contract

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/ldap/ldaptest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// tokenIssuer signs service account tokens like a cluster. Its keys are in a file that serve reads.
type tokenIssuer struct {
	name, audience, file string
	kid                  string
	key                  *ecdsa.PrivateKey
}

func newTokenIssuer(t testing.TB) *tokenIssuer {
	t.Helper()
	i := &tokenIssuer{name: "https://cluster.example", audience: "https://keys.example", file: filepath.Join(t.TempDir(), "jwks.json")}
	i.rotate(t, "one")
	i.publish(t)
	return i
}

// configure makes serve accept the issuer's tokens.
func (i *tokenIssuer) configure(c *server.Config) {
	c.Providers.OIDCIssuer, c.Providers.OIDCAudiences, c.Providers.OIDCKeysFile = i.name, []string{i.audience, "second audience"}, i.file
}

// rotate changes the signing key.
func (i *tokenIssuer) rotate(t testing.TB, kid string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i.kid, i.key = kid, key
}

// publish writes the public key into the file.
func (i *tokenIssuer) publish(t testing.TB) {
	t.Helper()
	public := (&holder{key: i.key}).jwk(t)
	public["kid"], public["use"] = i.kid, "sig"
	text, err := json.Marshal(rig.Object{"keys": []rig.Object{public}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(i.file+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(i.file+".new", i.file); err != nil {
		t.Fatal(err)
	}
}

func (i *tokenIssuer) header() string { return fmt.Sprintf(`{"alg":"ES256","kid":%q}`, i.kid) }

// claims returns the claims of a valid token, after change.
func (i *tokenIssuer) claims(subject string, change ...func(rig.Object)) rig.Object {
	now := time.Now().Unix()
	c := rig.Object{"iss": i.name, "sub": subject, "aud": []string{i.audience}, "exp": now + 600, "nbf": now, "iat": now}
	for _, f := range change {
		f(c)
	}
	return c
}

// token returns a token that is valid unless change modifies its claims.
func (i *tokenIssuer) token(t testing.TB, subject string, change ...func(rig.Object)) string {
	t.Helper()
	payload, err := json.Marshal(i.claims(subject, change...))
	if err != nil {
		t.Fatal(err)
	}
	return i.sign(t, i.header(), string(payload))
}

func (i *tokenIssuer) sign(t testing.TB, header, payload string) string {
	t.Helper()
	return (&holder{key: i.key}).sign(t, header, payload)
}

func tokenLogin(token string) rig.Object { return rig.Object{"method": "kubernetes", "token": token} }

// workload creates the xauth principal of a subject.
func (i *tokenIssuer) workload(t testing.TB, s *subject, name, sub string, audiences ...string) string {
	t.Helper()
	body := rig.Object{"name": s.name(name), "issuer": i.name, "subject": sub, "roleIds": []string{keyserver.RoleEncryptor.Hex()}}
	if audiences != nil {
		body["audiences"] = audiences
	}
	return s.OK(t, s.AsAdmin(t), "POST", "/api/principals/xauth", body).Text(t, "principal", "id")
}

const shop = "system:serviceaccount:shop:web"

// providers is a configuration with a token issuer and an LDAP directory.
var providers = &serverConfig{prepare: func(t testing.TB) []testserver.Option {
	provided.issuer, provided.directory = newTokenIssuer(t), ldaptest.Start(t)
	return []testserver.Option{provided.issuer.configure, byDirectory(provided.directory)}
}}

// provided has the token issuer and the directory of the configuration providers.
var provided struct {
	issuer    *tokenIssuer
	directory *ldaptest.Server
}

// TestKubernetesLogin checks method kubernetes: every invalid token gets the same error, and a valid token opens a
// session of its principal.
func TestKubernetesLogin(t *testing.T) {
	embedded(t, func(t *testing.T, s *subject) {
		i, shop := provided.issuer, s.name(shop)
		admin := s.AsAdmin(t)
		web := i.workload(t, s, "web", shop)
		off := i.workload(t, s, "off", s.name("system:serviceaccount:shop:off"))
		i.workload(t, s, "narrow", s.name("system:serviceaccount:shop:narrow"), "second audience", "third audience")
		s.OK(t, admin, "PUT", "/api/principals/"+off+"/flags", rig.Object{"disabled": true})
		stranger := *i
		stranger.rotate(t, i.kid)
		unknown := *i
		unknown.rotate(t, "unknown")
		set := func(name string, value any) func(rig.Object) { return func(c rig.Object) { c[name] = value } }
		public, err := x509.MarshalPKIXPublicKey(i.key.Public())
		if err != nil {
			t.Fatal(err)
		}
		good, err := json.Marshal(i.claims(shop))
		if err != nil {
			t.Fatal(err)
		}
		unsigned := base64url([]byte(`{"alg":"HS256","kid":"one"}`)) + "." + base64url(good)
		mac := hmac.New(sha256.New, public)
		mac.Write([]byte(unsigned))

		detail := ""
		for name, token := range map[string]string{
			"OtherAudience":     i.token(t, shop, set("aud", []string{"https://other.example"})),
			"NoAudience":        i.token(t, shop, func(c rig.Object) { delete(c, "aud") }),
			"Expired":           i.token(t, shop, set("exp", time.Now().Unix()-31)),
			"NoExpiry":          i.token(t, shop, func(c rig.Object) { delete(c, "exp") }),
			"NotYetValid":       i.token(t, shop, set("nbf", time.Now().Unix()+90)),
			"OtherIssuer":       i.token(t, shop, set("iss", "https://other.example")),
			"OtherSubject":      i.token(t, "system:serviceaccount:bank:web"),
			"OtherCase":         i.token(t, strings.ToUpper(shop)),
			"Disabled":          i.token(t, s.name("system:serviceaccount:shop:off")),
			"NotForPrincipal":   i.token(t, s.name("system:serviceaccount:shop:narrow")),
			"WrongKey":          stranger.token(t, shop),
			"UnknownKey":        unknown.token(t, shop),
			"AlgNone":           base64url([]byte(`{"alg":"none"}`)) + "." + base64url(good) + ".AA",
			"HS256WithKey":      unsigned + "." + base64url(mac.Sum(nil)),
			"DuplicateClaim":    i.sign(t, i.header(), strings.Replace(string(good), "{", `{"sub":"`+shop+`",`, 1)),
			"UnknownCrit":       i.sign(t, `{"alg":"ES256","kid":"one","crit":["x"],"x":1}`, string(good)),
			"ProofInstead":      i.sign(t, `{"alg":"ES256","kid":"one","typ":"dpop+jwt"}`, string(good)),
			"NoToken":           "token",
			"PasswordOfSomeone": "correct horse battery staple",
		} {
			a := s.Refused(t, "", "POST", "/api/sessions", tokenLogin(token), http.StatusUnauthorized, "INVALID_CREDENTIALS")
			if detail == "" {
				detail = a.Text(t, "detail")
			}
			if a.Text(t, "detail") != detail || strings.Contains(string(a.Raw), token) {
				t.Errorf("%s: %s differs from %q, or holds the token", name, a.Raw, detail)
			}
		}
		for name, body := range map[string]rig.Object{
			"Missing": {"method": "kubernetes"}, "Empty": tokenLogin(""), "Long": tokenLogin(strings.Repeat("a", 16385)),
			"WithName": {"method": "kubernetes", "token": "t", "name": "web"}, "WithPassword": {"method": "kubernetes", "token": "t", "password": "p"},
			"TokenForPassword": {"method": "password", "name": "admin", "password": "p", "token": "t"}, "NoText": {"method": "kubernetes", "token": 1},
		} {
			t.Run(name, func(t *testing.T) {
				s.Refused(t, "", "POST", "/api/sessions", body, http.StatusBadRequest, "BAD_REQUEST")
			})
		}
		// For an unknown subject, the audit row has the subject that the token claims.
		s.Refused(t, "", "POST", "/api/sessions", tokenLogin(i.token(t, s.name("system:serviceaccount:shop:last"))), http.StatusUnauthorized, "INVALID_CREDENTIALS")
		row := s.OK(t, admin, "GET", s.trail("reason=badCredentials&operation=login&limit=1000"), nil).List(t, "entries")
		last := row[len(row)-1]
		for _, r := range row {
			if r["object"] == s.name("system:serviceaccount:shop:last") {
				last = r
			}
		}
		if last["object"] != s.name("system:serviceaccount:shop:last") || last["outcome"] != "refused" || last["sessionKind"] != "kubernetes" {
			t.Errorf("the row of a refused login is %v", last)
		}

		a := s.OK(t, "", "POST", "/api/sessions", tokenLogin(i.token(t, shop)))
		if a.Body["kind"] != "kubernetes" || a.Text(t, "principal", "id") != web || a.Text(t, "principal", "type") != "xauth" || a.Text(t, "principal", "name") != s.name("web") {
			t.Errorf("the session is %s", a.Raw)
		}
		ends, err := time.Parse(time.RFC3339, a.Text(t, "expiresAt"))
		if left := time.Until(ends); err != nil || left > 11*time.Minute {
			t.Errorf("the session outlives its token of ten minutes: %s, %v", left, err)
		}
		session := a.Text(t, "sessionId")
		s.OK(t, session, "GET", "/api/sessions/current", nil)
		s.Refused(t, session, "GET", "/api/audit", nil, http.StatusForbidden, "ACCESS_DENIED")
		s.OK(t, admin, "PUT", "/api/principals/"+web+"/flags", rig.Object{"disabled": true})
		s.Refused(t, session, "POST", "/api/server/version", nil, http.StatusForbidden, "PRINCIPAL_DISABLED")

		narrow := i.token(t, s.name("system:serviceaccount:shop:narrow"), set("aud", []string{i.audience, "third audience"}))
		s.OK(t, "", "POST", "/api/sessions", tokenLogin(narrow))
	}, at(providers))
}

// TestKubernetesLoginBound checks that a session from a token can be bound to a key, like any other.
func TestKubernetesLoginBound(t *testing.T) {
	s := one(t, at(providers))
	i, shop := provided.issuer, s.name(shop)
	i.workload(t, s, "web", shop)
	h := newHolder(t)
	a := s.prove(t, "", "POST", "/api/sessions", tokenLogin(i.token(t, shop)), h.proof(t, "POST", s.URL()+"/api/sessions"))
	is(t, a, http.StatusOK, "")
	if a.Body["boundKey"] != h.thumbprint(t) {
		t.Errorf("the session is bound to %v", a.Body["boundKey"])
	}
}

// TestKubernetesKeyRotation checks that serve reads changed keys in the file without a restart.
func TestKubernetesKeyRotation(t *testing.T) {
	i := newTokenIssuer(t)
	if err := os.Remove(i.file); err != nil {
		t.Fatal(err)
	}
	ownEmbedded(t, func(t *testing.T, s *subject) {
		i.workload(t, s, "web", shop)
		a := s.Refused(t, "", "POST", "/api/sessions", tokenLogin(i.token(t, shop)), http.StatusServiceUnavailable, "IDENTITY_PROVIDER_UNAVAILABLE")
		if a.Body["retryable"] != true || a.Body["scope"] != "process" || a.Header.Get("Retry-After") == "" || strings.Contains(string(a.Raw), i.file) {
			t.Errorf("got %s", a.Raw)
		}
		until := func(token, code string) {
			t.Helper()
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(400 * time.Millisecond) {
				a := s.Send(t, "", "POST", "/api/sessions", tokenLogin(token))
				if a.Code() == code {
					return
				}
				if a.Code() == "LOGIN_THROTTLED" || time.Now().After(deadline) {
					t.Fatalf("got %d %s, want %q", a.Status, a.Raw, code)
				}
			}
		}
		i.publish(t)
		old := i.token(t, shop)
		until(old, "")
		i.rotate(t, "next of "+i.kid)
		i.publish(t)
		until(i.token(t, shop), "")
		until(old, "INVALID_CREDENTIALS")
	}, i.configure)
}

// TestProvidersNotConfigured checks the error of a method without a provider.
func TestProvidersNotConfigured(t *testing.T) {
	s := one(t)
	for _, body := range []rig.Object{tokenLogin("token"), {"method": "ldap", "name": "ann", "password": "p"}} {
		a := s.Refused(t, "", "POST", "/api/sessions", body, http.StatusBadRequest, "BAD_REQUEST")
		if !strings.Contains(a.Text(t, "detail"), "method") {
			t.Errorf("the detail does not name the field: %s", a.Raw)
		}
	}
}
