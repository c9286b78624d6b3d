// Package impostor is an attacker with its own CA and certificate. It can be registered as a peer, and then sends
// messages that no key server sends.
package impostor

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer/peerpb"
)

// Host is the address where an impostor can listen. No key server of a test uses it.
const Host = "127.0.0.9"

// patience is the timeout of a call. No call takes nearly as long.
const patience = time.Minute

// Impostor is an attacker with the system id under which it is registered.
type Impostor struct {
	System  int
	CA, Own pki.Identity
}

// New creates an impostor.
func New(t testing.TB, system int) Impostor {
	t.Helper()
	ca, err := pki.NewCA("CA of an impostor "+rand.Text(), time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	own, err := ca.IssueServer("impostor", nil, nil, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return Impostor{system, ca, own}
}

// Issued returns the impostor with another certificate for its key, issued at the time at.
func (i Impostor) Issued(t testing.TB, at time.Time) Impostor {
	t.Helper()
	own, err := i.CA.IssueServer("impostor", nil, i.Own.Key, at, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i.Own = own
	return i
}

// TLS returns the TLS configuration of the impostor, as client and as server.
func (i Impostor) TLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, InsecureSkipVerify: true,
		Certificates: []tls.Certificate{{Certificate: [][]byte{i.Own.Certificate.Raw, i.CA.Certificate.Raw}, PrivateKey: i.Own.Key}},
	}
}

// TrustedCA returns the body of a request to trust the CA of the impostor.
func (i Impostor) TrustedCA() map[string]any {
	return map[string]any{"certificate": base64.StdEncoding.EncodeToString(i.CA.Certificate.Raw)}
}

// TrustedServer returns the body of a request to register the impostor under a system id.
func (i Impostor) TrustedServer(t testing.TB, system int) map[string]any {
	t.Helper()
	chain, err := pki.EncodeChain(i.Own.Certificate, i.CA.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	blob := fmt.Sprintf("%d\t%s\t9443\t%s", system, Host, base64.StdEncoding.EncodeToString(chain))
	return map[string]any{"trustBlob": blob, "friendlyName": "impostor", "description": ""}
}

// Listen accepts TLS connections at an address with the impostor's certificate.
func (i Impostor) Listen(t testing.TB) (address string) {
	t.Helper()
	l, err := tls.Listen("tcp", net.JoinHostPort(Host, "0"), i.TLS())
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
			if secure, ok := c.(*tls.Conn); ok {
				_ = secure.HandshakeContext(t.Context()) // the test expects failures
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// Question returns a request that a principal of a key server may use a key. The principal has 16 hexadecimal digits.
// The request has a new request id and nonce.
func Question(t testing.TB, system int, principal, ttag string) *peerpb.AuthorizeRequest {
	t.Helper()
	link, err := base64.StdEncoding.DecodeString(ttag)
	if err != nil {
		t.Fatal(err)
	}
	id, err := values.ParseHexID(principal)
	if err != nil {
		t.Fatal(err)
	}
	nonce := make([]byte, 16)
	_, _ = rand.Read(nonce)
	return &peerpb.AuthorizeRequest{
		Link: link,
		Call: &peerpb.Call{
			RequestId: rand.Text(), Nonce: nonce,
			Principal: &peerpb.Principal{Ref: &peerpb.Ref{System: uint32(system), Id: id.Uint64()}, Type: "password", Name: "somebody"},
		},
	}
}

// Ask sends a request to the address at which a key server listens for its peers.
func (i Impostor) Ask(t testing.TB, address string, question *peerpb.AuthorizeRequest) error {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(i.TLS())), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = peerpb.NewKeyServerClient(conn).Authorize(ctx, question)
	return err
}
