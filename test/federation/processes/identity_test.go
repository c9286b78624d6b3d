package processes

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/federation/impostor"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// refusedHandshake is the log message for a refused connection.
const refusedHandshake = "a connection between key servers was refused"

// A server at a peer's address gets no request unless it is that peer. It may be another peer or an unknown server.
func TestAnotherAnswers(t *testing.T) {
	a, b, c := three(t, sqlite)
	ab := share(t, a, b, "asks", "READ")
	ab.works(t)
	stranger := impostor.New(t, 3)
	for name, tc := range map[string]struct{ address, cause string }{
		"AnotherPeer": {c.external, "the connection is for the peer 3, but the peer 4 responded"},
		"AStranger":   {stranger.Listen(t), refusedHandshake},
	} {
		t.Run(name, func(t *testing.T) {
			a.links[b.System].lead(tc.address)
			out := ab.ask(t)
			unavailable(t, out)
			for _, s := range []*site{b, c} {
				if rows := s.Rows(t, out.RequestID); len(rows) != 0 {
					t.Errorf("%d was asked: %v", s.System, rows)
				}
			}
			rig.Soon(t, "the log says why", func() bool { return strings.Contains(a.server.Log(), tc.cause) })
			a.links[b.System].lead(b.external)
			ab.works(t)
		})
	}
}

// joins makes a key server trust the impostor's CA and register the impostor.
func joins(t testing.TB, at *site, i impostor.Impostor) {
	t.Helper()
	at.OK(t, at.AsAdmin(t), "POST", "/api/trusted-cas", i.TrustedCA())
	at.OK(t, at.AsAdmin(t), "POST", "/api/trusted-servers", i.TrustedServer(t, i.System))
}

// asks sends a key server an impostor's request for a principal to use a key. It returns the id of the request.
func asks(t testing.TB, i impostor.Impostor, at *site, who rig.User, system int, ttag string) (requestID string, err error) {
	t.Helper()
	question := impostor.Question(t, system, who.ID, ttag)
	return question.GetCall().GetRequestId(), i.Ask(t, at.external, question)
}

// A registered peer sends false messages: it names principals of other key servers, forwards requests that it received,
// and claims to be another key server.
func TestPeerThatClaimsAnothersSystemID(t *testing.T) { onEach(t, peerThatClaimsAnothersSystemID) }

func peerThatClaimsAnothersSystemID(t *testing.T, on database) {
	a, b, c := three(t, on)
	ab := share(t, a, b, "honest", "READ")
	ab.works(t)
	evil := impostor.New(t, 5)

	// An unregistered certificate is refused, even if its CA is trusted.
	if _, err := asks(t, evil, b, ab.caller, a.System, ab.ttag); status.Code(err) != codes.Unavailable {
		t.Errorf("a stranger: %v", err)
	}
	b.OK(t, b.AsAdmin(t), "POST", "/api/trusted-cas", evil.TrustedCA())
	if _, err := asks(t, evil, b, ab.caller, a.System, ab.ttag); status.Code(err) != codes.Unavailable {
		t.Errorf("a stranger from a trusted CA: %v", err)
	}
	if !strings.Contains(b.server.Log(), refusedHandshake) {
		t.Error("the log does not tell of strangers")
	}

	// The system ids of a peer and of the key server itself cannot be registered.
	for _, system := range []int{a.System, b.System} {
		out := b.Send(t, b.AsAdmin(t), "POST", "/api/trusted-servers", evil.TrustedServer(t, system))
		if out.Status == 200 {
			t.Errorf("registered as %d: %v", system, out.Body)
		}
	}
	b.OK(t, b.AsAdmin(t), "POST", "/api/trusted-servers", evil.TrustedServer(t, evil.System))

	far := c.User(t, "far", keyserver.RoleEncryptor).Mint(t, []byte(material))
	for name, tc := range map[string]struct {
		system int
		ttag   string
	}{
		"AnothersPrincipal":    {a.System, ab.ttag},
		"OneOfThisKeyServer":   {b.System, ab.ttag},
		"KeyOfAThirdKeyServer": {evil.System, far},
	} {
		t.Run(name, func(t *testing.T) {
			who := ab.caller
			if tc.system == b.System {
				who = ab.owner
			}
			id, err := asks(t, evil, b, who, tc.system, tc.ttag)
			if status.Code(err) != codes.FailedPrecondition {
				t.Errorf("got %v, want a refusal", err)
			}
			rows := b.Rows(t, id)
			if got := b.trail(t, id); got != `["authorizeKey refused notForwarded"]` || rig.Number(rows[0]["systemId"]) != rig.Number(float64(tc.system)) {
				t.Errorf("rows: %s %v", got, rows)
			}
			if rows := c.Rows(t, id); len(rows) != 0 {
				t.Errorf("it was sent on: %v", rows)
			}
		})
	}
	// An impostor may name its own principals, but none is in the ACL.
	id, _ := asks(t, evil, b, ab.caller, evil.System, ab.ttag)
	if got := b.trail(t, id); got != `["authorizeKey refused aclDenied"]` {
		t.Errorf("for its own principal: %s", got)
	}
	ab.works(t)
}

// A key server refuses a certificate that is not yet valid or has expired by its own clock. A few minutes are
// tolerated, because certificates are backdated by as much. This test changes the times of the certificates; package
// federation changes the clocks.
func TestCertificatesFromOtherClocks(t *testing.T) {
	b := open(t, sqlite, 3)
	early := impostor.New(t, 5)
	joins(t, b, early)
	owner := b.User(t, "owner", keyserver.RoleEncryptor)
	ttag := owner.Mint(t, []byte(material))
	now := time.Now()
	for name, tc := range map[string]struct {
		issued time.Time
		in     bool
	}{
		"SameClock":     {now, true},
		"ALittleAhead":  {now.Add(4 * time.Minute), true},
		"AnHourAhead":   {now.Add(time.Hour), false},
		"AnHourBehind":  {now.Add(-time.Hour), true}, // it became valid long ago
		"YearsBehind":   {now.AddDate(-2, 0, 0), false},
		"SameClockOnce": {now, true}, // an earlier refusal has no effect
	} {
		t.Run(name, func(t *testing.T) {
			as := early.Issued(t, tc.issued)
			id, err := asks(t, as, b, owner, early.System, ttag)
			if tc.in {
				if got := b.trail(t, id); got != `["authorizeKey refused aclDenied"]` {
					t.Errorf("not let in: %v, %s", err, got)
				}
				return
			}
			if rows := b.Rows(t, id); status.Code(err) != codes.Unavailable || len(rows) != 0 {
				t.Errorf("let in: %v, %v", err, rows)
			}
		})
	}
	// An expired certificate cannot be registered.
	expired := impostor.New(t, 6).Issued(t, now.AddDate(-2, 0, 0))
	b.OK(t, b.AsAdmin(t), "POST", "/api/trusted-cas", expired.TrustedCA())
	if out := b.Send(t, b.AsAdmin(t), "POST", "/api/trusted-servers", expired.TrustedServer(t, 6)); out.Status == 200 {
		t.Errorf("registered with an expired certificate: %v", out.Body)
	}
}

// Connections without a certificate or without a chain are refused.
func TestStrangersAtTheListener(t *testing.T) {
	b := open(t, sqlite, 3)
	bare := impostor.New(t, 5)
	for name, certificates := range map[string][]tls.Certificate{
		"NoCertificate": nil,
		"NoChain":       {{Certificate: [][]byte{bare.Own.Certificate.Raw}, PrivateKey: bare.Own.Key}},
		"ACAItself":     {{Certificate: [][]byte{bare.CA.Certificate.Raw}, PrivateKey: bare.CA.Key}},
	} {
		t.Run(name, func(t *testing.T) {
			config := bare.TLS()
			config.Certificates = certificates
			var shown []*x509.Certificate
			config.VerifyConnection = func(s tls.ConnectionState) error { shown = s.PeerCertificates; return nil }
			conn, err := tls.DialWithDialer(&net.Dialer{Timeout: rig.Patience}, "tcp", b.external, config)
			if err == nil { // with TLS 1.3, the first read returns the refusal
				defer conn.Close()
				if err := conn.SetReadDeadline(time.Now().Add(rig.Patience)); err != nil {
					t.Fatal(err)
				}
				_, err = conn.Read(make([]byte, 1))
			}
			if err == nil || strings.Contains(err.Error(), "timeout") {
				t.Errorf("let in: %v", err)
			}
			if len(shown) == 0 {
				t.Error("nobody answers there")
			}
		})
	}
}
