package secrets

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/ldap/ldaptest"
	"github.com/keyserver-operator/keyserver-operator/test/rig/tokens"
)

const (
	issuer   = "https://issuer.example"
	audience = "keyserver"
	pod      = "system:serviceaccount:shop:web"
)

// providers configures a token issuer and a real directory.
func (r *run) providers(t *testing.T, dir string) []string {
	t.Helper()
	r.issuer = tokens.NewIssuer(t, issuer, audience)
	r.directory = ldaptest.Start(t)
	r.add("password of the search in the directory", ldaptest.ReaderPassword)
	bindFile := filepath.Join(dir, "bind")
	if err := os.WriteFile(bindFile, []byte(ldaptest.ReaderPassword), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{
		"--oidc-issuer", issuer, "--oidc-audience", audience, "--oidc-jwks-file", r.issuer.KeysFile,
		"--ldap-url", "ldaps://" + r.directory.Secure, "--ldap-ca-file", r.directory.CAFile, "--ldap-bind-dn", ldaptest.ReaderDN,
		"--ldap-bind-password-file", bindFile, "--ldap-base-dn", ldaptest.Base, "--ldap-filter", "(uid=%s)",
	}
}

// token returns a token of the issuer for the Pod.
func (r *run) token(t *testing.T, from *tokens.Issuer) string {
	t.Helper()
	token := from.Token(t, pod, time.Hour)
	r.add("token", token)
	// Only the signature is secret: the subject of a token is in the audit log.
	r.add("signature of a token", token[len(token)-86:])
	return token
}

// logins opens a session by each login method, and causes a refusal of each.
func (r *run) logins(t *testing.T, agent *tls.Certificate, key schema.HiddenLink) {
	t.Helper()
	ctx := t.Context()
	password, wrong := word(t), word(t)
	r.add("password of a principal", password)
	r.add("wrong password", wrong)
	r.add("password in the directory", ldaptest.AnnPassword)
	if _, err := r.admin.CreatePasswordPrincipal(ctx, schema.CreatePasswordPrincipalRequest{Name: "worker", Password: schema.Secret(password)}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.admin.CreateLDAPPrincipal(ctx, schema.CreateLDAPPrincipalRequest{Name: ldaptest.Ann}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.admin.CreateXAuthPrincipal(ctx, schema.CreateXAuthPrincipalRequest{Name: "pod", Issuer: issuer, Subject: pod}); err != nil {
		t.Fatal(err)
	}
	stranger := tokens.NewIssuer(t, issuer, audience)
	ldap := map[string]string{"method": "ldap", "name": ldaptest.Ann, "password": ldaptest.AnnPassword}
	r.login(t, "", map[string]string{"method": "kubernetes", "token": r.token(t, r.issuer)}, http.StatusOK)
	r.login(t, "", map[string]string{"method": "kubernetes", "token": r.token(t, stranger)}, http.StatusUnauthorized)
	r.login(t, "", ldap, http.StatusOK)
	r.login(t, "", map[string]string{"method": "ldap", "name": ldaptest.Ann, "password": wrong}, http.StatusUnauthorized)
	r.login(t, "", map[string]string{"method": "ldap", "name": "nobody", "password": wrong}, http.StatusUnauthorized)
	r.directory.Kill()
	r.login(t, "", ldap, http.StatusServiceUnavailable)
	r.login(t, "", map[string]string{"method": "password", "name": "worker", "password": wrong}, http.StatusUnauthorized)
	r.bearer = r.login(t, "", map[string]string{"method": "password", "name": "worker", "password": password}, http.StatusOK)

	byCertificate := *r
	transport, _ := r.http.Transport.(collector).RoundTripper.(*http.Transport)
	transport = transport.Clone()
	transport.TLSClientConfig.Certificates = []tls.Certificate{*agent}
	t.Cleanup(transport.CloseIdleConnections)
	byCertificate.http = &http.Client{Transport: collector{transport, r.planted}, Timeout: time.Minute}
	byCertificate.login(t, "", map[string]string{"method": "certificate"}, http.StatusOK)
	r.login(t, "", map[string]string{"method": "certificate"}, http.StatusUnauthorized)

	r.derived(t, key)
}

// derived derives sessions from a session that is bound to a key, and from an unbound session.
func (r *run) derived(t *testing.T, key schema.HiddenLink) {
	t.Helper()
	ctx := t.Context()
	boss, err := r.admin.CreatePasswordPrincipal(ctx, schema.CreatePasswordPrincipalRequest{Name: "boss", Password: schema.Secret(word(t))})
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	if _, err := r.admin.UpdatePrincipalFlags(ctx, schema.UpdatePrincipalFlagsRequest{ID: boss.Principal.ID, Delegation: &yes}); err != nil {
		t.Fatal(err)
	}
	acting, err := r.admin.ActingFor(boss.Principal.ID.String())
	if err != nil {
		t.Fatal(err)
	}
	if self, err := acting.GetCurrentSession(ctx); err != nil || self.Kind != schema.MethodDelegated {
		t.Fatalf("a delegated session: %+v, %v", self, err)
	}
	if self, err := r.admin.Scoped(key).GetCurrentSession(ctx); err != nil || self.Kind != schema.MethodScoped {
		t.Fatalf("a scoped session: %+v, %v", self, err)
	}
	r.login(t, r.bearer, map[string]any{"method": "scoped", "objects": []schema.HiddenLink{key}}, http.StatusOK)
	r.login(t, r.bearer, map[string]any{"method": "delegated", "principalId": boss.Principal.ID}, http.StatusForbidden)
}

// login sends a login. If it succeeds, login adds the session id to the planted values, because the program shows it
// only once, and returns it. Otherwise it searches the refusal for planted values.
func (r *run) login(t *testing.T, from string, with any, status int) string {
	t.Helper()
	body, err := json.Marshal(with)
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{}
	if from != "" {
		header.Set("Authorization", "Bearer "+from)
	}
	got, answer := r.send(t, http.MethodPost, "/api/sessions", string(body), header)
	if got != status {
		t.Fatalf("a login is answered %d, want %d: %.300s", got, status, answer)
	}
	if status != http.StatusOK {
		r.nowhere(t, "the refusal of a login", answer)
		return ""
	}
	var opened struct {
		SessionID string `json:"sessionId"`
		Kind      string `json:"kind"`
	}
	if err := json.Unmarshal(answer, &opened); err != nil || opened.SessionID == "" {
		t.Fatalf("a login answers no session: %v", err)
	}
	r.add("session id of a "+opened.Kind+" login", opened.SessionID)
	return opened.SessionID
}

// agent enrols a certificate, and returns it with the id of its principal.
func (r *run) agent(t *testing.T) (*tls.Certificate, schema.DecimalID) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "agent"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := r.admin.IssueCertificate(t.Context(), schema.IssueCertificateRequest{Request: request, ValidityDays: new(1)})
	if err != nil {
		t.Fatal(err)
	}
	enrolled, err := r.admin.EnrollCertificates(t.Context(), schema.EnrollCertificatesRequest{Certificates: []schema.DER{schema.DER(issued.Certificate)}})
	if err != nil || len(enrolled.Principals) != 1 {
		t.Fatalf("enrolled as %+v, %v", enrolled, err)
	}
	return &tls.Certificate{Certificate: [][]byte{issued.Certificate}, PrivateKey: key}, enrolled.Principals[0].PrincipalID
}
