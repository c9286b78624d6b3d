package processes

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/peer/peerpb"
	"github.com/keyserver-operator/keyserver-operator/internal/pki"
)

// refusedHandshake is what a key server logs of a connection that it refuses.
const refusedHandshake = "a connection between key servers was refused"

// Who answers at a peer's address and is not that peer, gets no question:
// neither another peer nor a stranger.
func TestAnotherAnswers(t *testing.T) {
	a, b, c := three(t, sqlite)
	ab := share(t, a, b, "asks", "READ")
	ab.works(t)
	stranger := newImpostor(t, 3)
	for name, tc := range map[string]struct{ address, cause string }{
		"AnotherPeer": {c.external, "the peer 3 was asked for, and the peer 4 answers"},
		"AStranger":   {stranger.listen(t), refusedHandshake},
	} {
		t.Run(name, func(t *testing.T) {
			a.links[b.system].lead(tc.address)
			out := ab.ask(t)
			unavailable(t, out)
			for _, s := range []*site{b, c} {
				if rows := s.rows(t, out.requestID); len(rows) != 0 {
					t.Errorf("%d was asked: %v", s.system, rows)
				}
			}
			soon(t, "the log says why", func() bool { return strings.Contains(a.server.Log(), tc.cause) })
			a.links[b.system].lead(b.external)
			ab.works(t)
		})
	}
}

// impostor is somebody with a CA and a certificate of his own, who can be
// registered as a peer and then says what no key server says.
type impostor struct {
	system  int
	ca, own pki.Identity
}

func newImpostor(t testing.TB, system int) impostor {
	t.Helper()
	ca, err := pki.NewCA("CA of an impostor "+rand.Text(), time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	own, err := ca.IssueServer("impostor", nil, nil, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return impostor{system, ca, own}
}

// issued is the impostor with a certificate for its key that is from another time.
func (i impostor) issued(t testing.TB, at time.Time) impostor {
	t.Helper()
	own, err := i.ca.IssueServer("impostor", nil, i.own.Key, at, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i.own = own
	return i
}

func (i impostor) tls() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, InsecureSkipVerify: true,
		Certificates: []tls.Certificate{{Certificate: [][]byte{i.own.Certificate.Raw, i.ca.Certificate.Raw}, PrivateKey: i.own.Key}},
	}
}

// blob is a trust blob with the impostor's certificate.
func (i impostor) blob(t testing.TB, system int, host string) object {
	t.Helper()
	chain, err := pki.EncodeChain(i.own.Certificate, i.ca.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%d\t%s\t9443\t%s", system, host, base64.StdEncoding.EncodeToString(chain))
	return object{"trustBlob": text, "friendlyName": "impostor", "description": ""}
}

// join has a key server trust the impostor's CA and register it.
func (i impostor) join(t testing.TB, at *site) {
	t.Helper()
	at.ok(t, at.admin, "POST", "/api/trusted-cas", object{"certificate": base64.StdEncoding.EncodeToString(i.ca.Certificate.Raw)})
	at.ok(t, at.admin, "POST", "/api/trusted-servers", i.blob(t, i.system, "127.0.0.9"))
}

// listen answers TLS at an address with the impostor's certificate.
func (i impostor) listen(t testing.TB) (address string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.9:0", i.tls())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*tls.Conn).HandshakeContext(t.Context())
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// asks sends a question about a key for a principal to a key server, and
// answers the id of the request.
func (i impostor) asks(t testing.TB, at *site, who user, system int, ttag string) (requestID string, err error) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+at.external, grpc.WithTransportCredentials(credentials.NewTLS(i.tls())), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	link, err := base64.StdEncoding.DecodeString(ttag)
	if err != nil {
		t.Fatal(err)
	}
	principal, err := keyserver.ParseHexID(who.id)
	if err != nil {
		t.Fatal(err)
	}
	nonce := make([]byte, 16)
	_, _ = rand.Read(nonce)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	requestID = rand.Text()
	_, err = peerpb.NewKeyServerClient(conn).Authorize(ctx, &peerpb.AuthorizeRequest{
		Link: link,
		Call: &peerpb.Call{
			RequestId: requestID, Nonce: nonce,
			Principal: &peerpb.Principal{Ref: &peerpb.Ref{System: uint32(system), Id: principal.Uint64()}, Type: "password", Name: "somebody"},
		},
	})
	return requestID, err
}

// A registered peer that is not what it should be: it speaks for others'
// principals, sends on what it was asked, and wants to be somebody else.
func TestPeerThatClaimsAnothersSystemID(t *testing.T) { onEach(t, peerThatClaimsAnothersSystemID) }

func peerThatClaimsAnothersSystemID(t *testing.T, on database) {
	a, b, c := three(t, on)
	ab := share(t, a, b, "honest", "READ")
	ab.works(t)
	evil := newImpostor(t, 5)

	// Nobody gets in on a certificate that is nobody's, whatever CA it is from.
	if _, err := evil.asks(t, b, ab.caller, a.system, ab.ttag); status.Code(err) != codes.Unavailable {
		t.Errorf("a stranger: %v", err)
	}
	b.ok(t, b.admin, "POST", "/api/trusted-cas", object{"certificate": base64.StdEncoding.EncodeToString(evil.ca.Certificate.Raw)})
	if _, err := evil.asks(t, b, ab.caller, a.system, ab.ttag); status.Code(err) != codes.Unavailable {
		t.Errorf("a stranger from a trusted CA: %v", err)
	}
	if !strings.Contains(b.server.Log(), refusedHandshake) {
		t.Error("the log does not tell of strangers")
	}

	// The system ids of others are taken: that of a peer, and its own.
	for _, system := range []int{a.system, b.system} {
		out := b.send(t, b.admin, "POST", "/api/trusted-servers", evil.blob(t, system, "127.0.0.9"))
		if out.status == 200 {
			t.Errorf("registered as %d: %v", system, out.body)
		}
	}
	b.ok(t, b.admin, "POST", "/api/trusted-servers", evil.blob(t, evil.system, "127.0.0.9"))

	far := c.user(t, "far", encryptor).mint(t, material)
	for name, tc := range map[string]struct {
		system int
		ttag   string
	}{
		"AnothersPrincipal":    {a.system, ab.ttag},
		"OneOfThisKeyServer":   {b.system, ab.ttag},
		"KeyOfAThirdKeyServer": {evil.system, far},
	} {
		t.Run(name, func(t *testing.T) {
			who := ab.caller
			if tc.system == b.system {
				who = ab.owner
			}
			id, err := evil.asks(t, b, who, tc.system, tc.ttag)
			if status.Code(err) != codes.FailedPrecondition {
				t.Errorf("got %v, want a refusal", err)
			}
			rows := b.rows(t, id)
			if got := b.trail(t, id); got != `["authorizeKey refused notForwarded"]` || number(rows[0]["systemId"]) != number(float64(tc.system)) {
				t.Errorf("rows: %s %v", got, rows)
			}
			if rows := c.rows(t, id); len(rows) != 0 {
				t.Errorf("it was sent on: %v", rows)
			}
		})
	}
	// Its own principals it may speak for; the list has none of them.
	id, _ := evil.asks(t, b, ab.caller, evil.system, ab.ttag)
	if got := b.trail(t, id); got != `["authorizeKey refused aclDenied"]` {
		t.Errorf("for its own principal: %s", got)
	}
	ab.works(t)
}

// Clocks that differ show in certificates: what is not valid yet, or no more,
// by this key server's clock does not get in. A few minutes are tolerated, as
// certificates are dated back by as much. The clock of a process itself cannot
// be turned here; that of a certificate can.
func TestClocksThatDiffer(t *testing.T) {
	b := open(t, sqlite, 3)
	early := newImpostor(t, 5)
	early.join(t, b)
	owner := b.user(t, "owner", encryptor)
	ttag := owner.mint(t, material)
	now := time.Now()
	for name, tc := range map[string]struct {
		issued time.Time
		in     bool
	}{
		"SameClock":     {now, true},
		"ALittleAhead":  {now.Add(4 * time.Minute), true},
		"AnHourAhead":   {now.Add(time.Hour), false},
		"AnHourBehind":  {now.Add(-time.Hour), true}, // it has long been valid
		"YearsBehind":   {now.AddDate(-2, 0, 0), false},
		"SameClockOnce": {now, true}, // a refusal leaves nothing behind
	} {
		t.Run(name, func(t *testing.T) {
			as := early.issued(t, tc.issued)
			id, err := as.asks(t, b, owner, early.system, ttag)
			if tc.in {
				if got := b.trail(t, id); got != `["authorizeKey refused aclDenied"]` {
					t.Errorf("not let in: %v, %s", err, got)
				}
				return
			}
			if rows := b.rows(t, id); status.Code(err) != codes.Unavailable || len(rows) != 0 {
				t.Errorf("let in: %v, %v", err, rows)
			}
		})
	}
	// And nobody is registered with a certificate that has expired.
	expired := newImpostor(t, 6).issued(t, now.AddDate(-2, 0, 0))
	b.ok(t, b.admin, "POST", "/api/trusted-cas", object{"certificate": base64.StdEncoding.EncodeToString(expired.ca.Certificate.Raw)})
	if out := b.send(t, b.admin, "POST", "/api/trusted-servers", expired.blob(t, 6, "127.0.0.9")); out.status == 200 {
		t.Errorf("registered with an expired certificate: %v", out.body)
	}
}

// A connection without a certificate, or with one without a chain, is no
// connection.
func TestStrangersAtTheListener(t *testing.T) {
	b := open(t, sqlite, 3)
	bare := newImpostor(t, 5)
	for name, certificates := range map[string][]tls.Certificate{
		"NoCertificate": nil,
		"NoChain":       {{Certificate: [][]byte{bare.own.Certificate.Raw}, PrivateKey: bare.own.Key}},
		"ACAItself":     {{Certificate: [][]byte{bare.ca.Certificate.Raw}, PrivateKey: bare.ca.Key}},
	} {
		t.Run(name, func(t *testing.T) {
			config := bare.tls()
			config.Certificates = certificates
			var shown []*x509.Certificate
			config.VerifyConnection = func(s tls.ConnectionState) error { shown = s.PeerCertificates; return nil }
			conn, err := tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", b.external, config)
			if err == nil { // in TLS 1.3 the refusal comes with the first reading
				defer conn.Close()
				if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
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
