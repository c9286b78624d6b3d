package server_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/testserver"
)

// The listener for peers takes the trust list at each handshake.
func TestTheExternalListenerFollowsTheTrustList(t *testing.T) {
	ctx := context.Background()
	address := testserver.FreeAddress(t)
	s := testserver.Start(t, func(c *server.Config) { c.ExternalListen = address })
	admin := s.Admin(t)
	ca, err := pki.NewCA("peers", time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	peer, err := ca.IssueServer("peer", nil, nil, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	with := func(chain ...tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: s.Pool(t), MinVersion: tls.VersionTLS13, Certificates: chain}
	}
	own := tls.Certificate{Certificate: [][]byte{peer.Certificate.Raw}, PrivateKey: peer.Key}

	if err := ask(address, with()); err == nil {
		t.Error("a client without a certificate was let in")
	}
	if err := ask(address, with(own)); err == nil {
		t.Error("a client of an unknown CA was let in")
	}
	added, err := admin.AddTrustedCA(ctx, ca.Certificate.Raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := ask(address, with(own)); err != nil {
		t.Errorf("the CA was added: %v", err)
	}

	conn, err := tls.Dial("tcp", address, with(own))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := roundTrip(conn); err != nil {
		t.Fatalf("on a connection that stays open: %v", err)
	}
	if _, err := admin.RemoveTrustedCA(ctx, keyserver.ID(*added.TrustedCA.CertificateID).Base64()); err != nil {
		t.Fatal(err)
	}
	if err := ask(address, with(own)); err == nil {
		t.Error("the CA was removed, and its client was let in")
	}
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
		t.Errorf("the connection that the removed CA had let in is still open: %v", err)
	}
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error) //nolint:errorlint // what a connection returns, unwrapped
	return ok && timeout.Timeout()
}

// ask makes one connection and one request.
func ask(address string, cfg *tls.Config) error {
	conn, err := tls.Dial("tcp", address, cfg)
	if err != nil {
		return err
	}
	defer conn.Close()
	return roundTrip(conn) // in TLS 1.3 a refusal arrives after the client's part of the handshake
}

func roundTrip(conn net.Conn) error {
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: peer\r\n\r\n"); err != nil {
		return err
	}
	buf := make([]byte, 512)
	n, err := conn.Read(buf)
	if err != nil {
		return err
	}
	if answer := string(buf[:n]); !strings.Contains(answer, http.StatusText(http.StatusNotFound)) {
		return io.ErrUnexpectedEOF
	}
	return nil
}
