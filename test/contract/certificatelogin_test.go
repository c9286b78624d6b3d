package contract

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

var certificateLogin = rig.Object{"method": "certificate"}

// pair returns the certificate that an agent sends in a handshake.
func pair(agent enginetest.Agent) *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{agent.Certificate.Raw}, PrivateKey: agent.Key, Leaf: agent.Certificate}
}

// showing returns the same server with separate connections that send the agent's certificate.
func (s *subject) showing(t testing.TB, agent enginetest.Agent) *subject {
	t.Helper()
	over := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		ForceAttemptHTTP2: true, DialContext: dial(s.from),
		TLSClientConfig: &tls.Config{RootCAs: s.Pool(t), MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*pair(agent)}},
	}}
	t.Cleanup(over.CloseIdleConnections)
	shows := *s
	shows.Site = s.WithHTTPClient(over)
	return &shows
}

// shutOut checks that a new connection with the agent's certificate fails in the TLS handshake.
func (s *subject) shutOut(t testing.TB, agent enginetest.Agent) {
	t.Helper()
	conn, err := tls.Dial("tcp", s.Address(), &tls.Config{RootCAs: s.Pool(t), MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*pair(agent)}})
	if err == nil {
		defer conn.Close()
		// In TLS 1.3 the client learns of the refusal only after its own part of the handshake.
		_, err = conn.Read(make([]byte, 1))
	}
	if err == nil || !strings.Contains(err.Error(), "tls: bad certificate") {
		t.Errorf("a connection with the certificate of %s was not refused for it: %v", agent.Certificate.Subject, err)
	}
}

// stay opens a connection with the agent's certificate, sends one request and keeps the connection open.
func (s *subject) stay(t testing.TB, agent enginetest.Agent) net.Conn {
	t.Helper()
	conn, err := tls.Dial("tcp", s.Address(), &tls.Config{RootCAs: s.Pool(t), MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*pair(agent)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := errors.Join(health(conn), conn.SetDeadline(time.Now().Add(30*time.Second))); err != nil {
		t.Fatal(err)
	}
	return conn
}

// health sends one request over a connection.
func health(conn net.Conn) error {
	if _, err := io.WriteString(conn, "GET /api/health HTTP/1.1\r\nHost: keyserver\r\n\r\n"); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

// agent issues a certificate for a common name and enrols it.
func (s *subject) agent(t testing.TB, ca pki.Identity, commonName string, roles ...keyserver.ID) enginetest.Agent {
	t.Helper()
	a := enginetest.NewAgent(t, ca, s.name(commonName), time.Now(), nil)
	ids := make([]string, len(roles))
	for i, r := range roles {
		ids[i] = r.Hex()
	}
	s.OK(t, s.AsAdmin(t), "POST", "/api/certificates/enroll", rig.Object{"certificates": []string{b64(a.Certificate.Raw)}, "roleIds": ids})
	return a
}

// login opens a certificate session over the connections of s.
func (s *subject) login(t testing.TB) string {
	t.Helper()
	return s.OK(t, "", "POST", "/api/sessions", certificateLogin).Text(t, "sessionId")
}

// principalNamed returns the 16-digit hex id of a transport principal.
func (s *subject) principalNamed(t testing.TB, name string) string {
	t.Helper()
	for _, p := range s.OK(t, s.AsAdmin(t), "GET", "/api/principals?type=certificate", nil).List(t, "principals") {
		if p["name"] == s.name(name) {
			id, _ := p["id"].(string)
			return id
		}
	}
	t.Fatalf("no transport principal is named %s", name)
	return ""
}

// TestCertificateLogin checks contract 19.4, method certificate: it has no fields, and the session is of the
// transport principal for which the connection's certificate is enrolled.
func TestCertificateLogin(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		outside := newCA(t, s.name("outside"))
		s.trustIssuer(t, outside)
		foreign := s.agent(t, outside, "foreign", keyserver.RoleExchanger)
		key := newKey(t)
		issued, err := x509.ParseCertificate(s.issue(t, "issued", key))
		if err != nil {
			t.Fatal(err)
		}
		s.enroll(t, issued.Raw)
		for name, agent := range map[string]enginetest.Agent{s.name("/CN=foreign"): foreign, s.name("/CN=issued"): {Certificate: issued, Key: key}} {
			with := s.showing(t, agent)
			a := with.OK(t, "", "POST", "/api/sessions", certificateLogin)
			if a.Body["kind"] != "certificate" || a.At(t, "principal", "type") != "certificate" || a.At(t, "principal", "name") != name || a.Body["boundKey"] != nil {
				t.Errorf("%s: %s", name, a.Raw)
			}
			if now := with.OK(t, a.Text(t, "sessionId"), "GET", "/api/sessions/current", nil); now.At(t, "principal", "name") != name {
				t.Errorf("%s: the session is %s", name, now.Raw)
			}
			with.Refused(t, "", "POST", "/api/sessions", rig.Object{"method": "certificate", "name": "x"}, 400, "BAD_REQUEST")
		}
		rows := s.OK(t, s.with(t, keyserver.RoleAuditor), "GET", s.trail("operation=login&limit=1000"), nil).List(t, "entries")
		audited := false
		for _, r := range rows {
			audited = audited || r["sessionKind"] == "certificate" && r["outcome"] == "allowed" && r["object"] == s.name("/CN=foreign")
		}
		if !audited {
			t.Errorf("the login left no row: %v", rows)
		}
	})
}

// TestKeyMetadataForATransportPrincipal checks POST /api/keys/get: a transport principal that logged in with an
// enrolled certificate reads the metadata of a key, never its bytes.
func TestKeyMetadataForATransportPrincipal(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		const path = "/api/keys/get"
		outside := newCA(t, s.name("outside"))
		s.trustIssuer(t, outside)
		link := s.mint(t, "a key of 15 byt")
		reader := s.showing(t, s.agent(t, outside, "reader", keyserver.RoleExchanger))
		roleless := s.showing(t, s.agent(t, outside, "roleless"))
		session := reader.login(t)
		reader.Refused(t, session, "POST", path, rig.Object{"ttag": link}, http.StatusForbidden, "ACL_DENIED")
		roleless.Refused(t, roleless.login(t), "POST", path, rig.Object{"ttag": link}, http.StatusForbidden, "ACCESS_DENIED")
		id, err := schema.ParseHexID(s.principalNamed(t, "/CN=reader"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.Admin(t).GetPrincipal(t.Context(), schema.ByID{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		s.OK(t, s.AsAdmin(t), "POST", "/api/keys/acl/grant", rig.Object{"ttag": link, "systemId": 1, "principalId": p.PrincipalID.String(), "rights": []string{"READ"}})
		a := reader.OK(t, session, "POST", path, rig.Object{"ttag": link})
		if a.Body["ttag"] != link || a.Body["keyBytes"] != 15.0 || a.Body["algorithm"] != "HMAC-SHA384" || strings.Contains(string(a.Raw), b64([]byte("a key of 15 byt"))) {
			t.Errorf("got %s", a.Raw)
		}
		reader.Refused(t, session, "POST", path, rig.Object{"ttag": "AAAAAQECAwQFBgcI"}, http.StatusNotFound, "KEY_NOT_FOUND")
	})
}

// TestCertificateLoginRefusals checks that every failed login gets INVALID_CREDENTIALS. Only the audit log has
// the cause.
func TestCertificateLoginRefusals(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		outside := newCA(t, s.name("outside"))
		s.trustIssuer(t, outside)
		refused := func(with *subject, reason, object string) rig.Answer {
			t.Helper()
			a := with.Refused(t, "", "POST", "/api/sessions", certificateLogin, http.StatusUnauthorized, "INVALID_CREDENTIALS")
			rows := s.OK(t, s.with(t, keyserver.RoleAuditor), "GET", s.trail("operation=login&reason="+reason), nil).List(t, "entries")
			if len(rows) != 1 || rows[0]["outcome"] != "refused" || rows[0]["object"] != object || rows[0]["sessionKind"] != "certificate" {
				t.Errorf("%s: audited as %v", reason, rows)
			}
			return a
		}
		if a := refused(s, "noCertificate", ""); !strings.Contains(a.Text(t, "detail"), "certificate") {
			t.Errorf("does not say what is missing: %s", a.Raw)
		}
		stranger := s.showing(t, enginetest.NewAgent(t, outside, s.name("stranger"), time.Now(), nil))
		first := refused(stranger, "notEnrolled", s.name("/CN=stranger"))
		// On a connection with a certificate that is not enrolled, a password login works.
		if stranger.AsAdmin(t) == "" {
			t.Error("no session")
		}

		disabled := s.showing(t, s.agent(t, outside, "disabled"))
		disabled.login(t)
		s.OK(t, s.AsAdmin(t), "PUT", "/api/principals/"+s.principalNamed(t, "/CN=disabled")+"/flags", rig.Object{"disabled": true})
		second := refused(disabled, "principalDisabled", s.name("/CN=disabled"))

		key := newKey(t)
		old, err := x509.ParseCertificate(s.issue(t, "renewed", key))
		if err != nil {
			t.Fatal(err)
		}
		s.enroll(t, old.Raw)
		renewed := s.showing(t, enginetest.Agent{Certificate: old, Key: key})
		session := renewed.login(t)
		s.OK(t, s.AsAdmin(t), "POST", "/api/certificates/renew", rig.Object{"certificate": b64(old.Raw)})
		third := refused(renewed, "certificateNotCurrent", s.name("/CN=renewed"))
		renewed.Refused(t, session, "GET", "/api/roles", nil, http.StatusUnauthorized, "SESSION_EXPIRED")
		for _, a := range []rig.Answer{second, third} {
			if a.Text(t, "detail") != first.Text(t, "detail") {
				t.Errorf("the answers tell causes apart: %s and %s", first.Raw, a.Raw)
			}
		}
	})
}

// TestADisabledTransportPrincipalFailsInTLS checks PrincipalFlags.disabled: a handshake with the certificate of
// a disabled principal fails. Without the certificate the client can log in as another principal. On an open
// connection, its session gets an error code.
func TestADisabledTransportPrincipalFailsInTLS(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		outside := newCA(t, s.name("outside"))
		s.trustIssuer(t, outside)
		agent := s.agent(t, outside, "agent", keyserver.RoleExchanger)
		with := s.showing(t, agent)
		session := with.login(t)
		path := "/api/principals/" + s.principalNamed(t, "/CN=agent") + "/flags"
		s.OK(t, s.AsAdmin(t), "PUT", path, rig.Object{"disabled": true})
		with.Refused(t, session, "POST", "/api/keys/get", rig.Object{"ttag": s.mint(t, "key")}, http.StatusForbidden, "PRINCIPAL_DISABLED")
		s.shutOut(t, agent)
		s.Refused(t, session, "POST", "/api/keys/get", rig.Object{"ttag": s.mint(t, "key")}, http.StatusForbidden, "PRINCIPAL_DISABLED")
		s.OK(t, s.AsAdmin(t), "PUT", path, rig.Object{"disabled": false})
		s.showing(t, agent).login(t)
	})
}

// TestRevocationOfCertificateSessions checks contract 19.6: each operation checks the session's certificate
// against revocation evidence again. A login makes the same check.
func TestRevocationOfCertificateSessions(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		outside := newCA(t, s.name("outside"))
		digest := s.trustIssuer(t, outside)
		officer := s.with(t, keyserver.RoleSecurityOfficer)
		policy := func(mode string, age int) {
			t.Helper()
			s.OK(t, officer, "PUT", "/api/revocation/issuers/"+digest+"/policy", rig.Object{"mode": mode, "maxAgeSeconds": age})
		}
		now := time.Now()
		imported := func(number int64, thisUpdate time.Time, revoked ...*x509.Certificate) {
			t.Helper()
			s.OK(t, officer, "POST", "/api/revocation/crls", rig.Object{"crl": b64(enginetest.NewCRL(t, outside, number, thisUpdate, nil, revoked...))})
		}
		goodAgent, badAgent := s.agent(t, outside, "good", keyserver.RoleAuditor), s.agent(t, outside, "bad", keyserver.RoleAuditor)
		good, bad := s.showing(t, goodAgent), s.showing(t, badAgent)
		goodSession, badSession := good.login(t), bad.login(t)
		everywhere := func(with *subject, session string, status int, code string) {
			t.Helper()
			with.Refused(t, "", "POST", "/api/sessions", certificateLogin, status, code)
			for range 2 {
				with.Refused(t, session, "GET", "/api/roles", nil, status, code)
				with.Refused(t, session, "GET", "/api/audit", nil, status, code)
			}
			s.Refused(t, session, "GET", "/api/roles", nil, http.StatusUnauthorized, "CERTIFICATE_MISMATCH") // another certificate than that of the session
		}
		policy("required", 0)
		everywhere(good, goodSession, http.StatusForbidden, "REVOCATION_STATUS_UNAVAILABLE")
		imported(1, now.Add(-2*time.Hour))
		good.OK(t, goodSession, "GET", "/api/roles", nil)
		policy("required", 3600)
		everywhere(good, goodSession, http.StatusForbidden, "REVOCATION_EVIDENCE_STALE")
		imported(2, now, badAgent.Certificate)
		good.OK(t, goodSession, "GET", "/api/roles", nil)
		everywhere(bad, badSession, http.StatusUnauthorized, "CERTIFICATE_REVOKED")
		// The server still accepts the connection, so that the response can name the reason.
		again := s.showing(t, badAgent)
		again.Refused(t, "", "POST", "/api/sessions", certificateLogin, http.StatusUnauthorized, "CERTIFICATE_REVOKED")
		if a := again.Refused(t, badSession, "GET", "/api/roles", nil, http.StatusUnauthorized, "CERTIFICATE_REVOKED"); a.Body["reauth"] == true {
			t.Errorf("asks for a new login, which cannot help: %s", a.Raw)
		}
		for _, reason := range []string{"revocationStatusUnavailable", "revocationEvidenceStale", "certificateRevoked"} {
			if rows := s.OK(t, s.with(t, keyserver.RoleAuditor), "GET", s.trail("operation=login&reason="+reason), nil).List(t, "entries"); len(rows) == 0 {
				t.Errorf("a login refused as %s left no row", reason)
			}
		}
	})
}

// TestResetEndsCertificateSessions checks POST /api/transport-principals/reset: it removes the certificates and ends
// the sessions. After another enrolment the agent can log in again.
func TestResetEndsCertificateSessions(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		outside := newCA(t, s.name("outside"))
		s.trustIssuer(t, outside)
		agent := s.agent(t, outside, "agent", keyserver.RoleAuditor)
		with := s.showing(t, agent)
		session := with.login(t)
		with.OK(t, session, "GET", "/api/roles", nil)
		s.OK(t, s.AsAdmin(t), "POST", "/api/transport-principals/reset", rig.Object{"principalId": s.principalNamed(t, "/CN=agent")})
		with.Refused(t, session, "GET", "/api/roles", nil, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		with.Refused(t, "", "POST", "/api/sessions", certificateLogin, http.StatusUnauthorized, "INVALID_CREDENTIALS")
		s.enroll(t, agent.Certificate.Raw)
		with.OK(t, with.login(t), "GET", "/api/sessions/current", nil)
	})
}

// TestTheAPIListenerFollowsTheTrustList checks that each handshake uses the current trust list. Adding or removing a CA
// takes effect for the next connection. Connections of a removed CA are closed. Sessions of its certificates are
// refused until the CA is added again.
func TestTheAPIListenerFollowsTheTrustList(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		outside, kept := newCA(t, s.name("outside")), newCA(t, s.name("kept"))
		s.shutOut(t, enginetest.NewAgent(t, outside, s.name("agent"), time.Now(), nil))
		s.trustIssuer(t, outside)
		removed := s.listed(t, outside)
		s.trustIssuer(t, kept)
		agent := s.agent(t, outside, "agent", keyserver.RoleAuditor)
		with := s.showing(t, agent)
		session := with.login(t)
		with.OK(t, session, "GET", "/api/roles", nil)

		open, other := s.stay(t, agent), s.stay(t, s.agent(t, kept, "other"))
		s.OK(t, s.AsAdmin(t), "POST", "/api/trusted-cas/remove", rig.Object{"certificateId": removed["certificateId"]})
		if _, err := io.Copy(io.Discard, open); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the connection that the removed CA had let in is still open")
		}
		if err := health(other); err != nil {
			t.Errorf("the connection of another CA: %v", err)
		}
		s.shutOut(t, agent)
		s.Refused(t, session, "GET", "/api/roles", nil, http.StatusUnauthorized, "CERTIFICATE_MISMATCH")
		s.trustIssuer(t, outside)
		again := s.showing(t, agent)
		again.login(t)
		again.OK(t, session, "GET", "/api/roles", nil)
	})
}

// TestExpiredClientCertificates checks that an expired certificate ends its session, and prevents logins and
// TLS connections.
func TestExpiredClientCertificates(t *testing.T) {
	var ahead atomic.Int64
	clock := func(c *server.Config) {
		c.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	}
	ownEmbedded(t, func(t *testing.T, s *subject) {
		outside := newCA(t, s.name("outside"))
		s.trustIssuer(t, outside)
		agent := enginetest.NewAgent(t, outside, s.name("agent"), time.Now(), func(c *x509.Certificate) { c.NotAfter = time.Now().Add(5 * time.Minute) })
		s.enroll(t, agent.Certificate.Raw)
		with := s.showing(t, agent)
		session := with.login(t)
		ahead.Store(int64(6 * time.Minute))
		with.Refused(t, session, "GET", "/api/roles", nil, http.StatusUnauthorized, "SESSION_EXPIRED")
		with.Refused(t, "", "POST", "/api/sessions", certificateLogin, http.StatusUnauthorized, "INVALID_CREDENTIALS")
		s.shutOut(t, agent)
	}, clock)
}

// TestClientWithCertificateCredentials checks that the Go client logs in with a certificate. It uses a renewed
// certificate, although its connections were made with the old one.
func TestClientWithCertificateCredentials(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		key := newKey(t)
		old, err := x509.ParseCertificate(s.issue(t, "agent", key))
		if err != nil {
			t.Fatal(err)
		}
		s.enroll(t, old.Raw)
		var shown atomic.Pointer[tls.Certificate]
		shown.Store(pair(enginetest.Agent{Certificate: old, Key: key}))
		c, err := client.New(client.Options{
			BaseURL: s.URL(), RootCAs: s.Pool(t), ProofKey: newKey(t),
			Credentials: client.CertificateCredentials(func() (*tls.Certificate, error) { return shown.Load(), nil }),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.CloseIdleConnections()
		if session, err := c.GetCurrentSession(t.Context()); err != nil || session.Kind != "certificate" || session.BoundKey == nil {
			t.Fatalf("got %+v, %v", session, err)
		}
		a := s.OK(t, s.AsAdmin(t), "POST", "/api/certificates/renew", rig.Object{"certificate": b64(old.Raw)})
		renewed, _ := leaf(t, a.Text(t, "chain"))
		shown.Store(pair(enginetest.Agent{Certificate: renewed, Key: key}))
		if _, err := c.ListRoles(t.Context()); !client.IsCode(err, "ACCESS_DENIED") { // a session without roles
			t.Errorf("after the renewal: %v", err)
		}
	})
}
