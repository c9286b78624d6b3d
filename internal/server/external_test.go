package server_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// stranger is a possible peer: a server certificate and its CA.
type stranger struct {
	ca, own pki.Identity
}

func newStranger(t *testing.T, name string) stranger {
	t.Helper()
	ca, err := pki.NewCA("CA of "+name, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	own, err := ca.IssueServer(name, nil, nil, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return stranger{ca, own}
}

// register registers the stranger as a peer. No process listens at its address (RFC 5737).
func (p stranger) register(t *testing.T, admin *client.Client, system int) {
	t.Helper()
	chain, err := pki.EncodeChain(p.own.Certificate, p.ca.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	blob := fmt.Sprintf("%d\t192.0.2.%d\t9443\t%s", system, system, base64.StdEncoding.EncodeToString(chain))
	registration := schema.AddTrustedServerRequest{FriendlyName: "peer"}
	if registration.TrustBlob, err = schema.ParseTrustBlob(blob); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.AddTrustedServer(context.Background(), registration); err != nil {
		t.Fatal(err)
	}
}

// with returns a TLS configuration that presents the certificate own with the stranger's CA.
func (p stranger) with(t *testing.T, s *testserver.Server, own pki.Identity) *tls.Config {
	t.Helper()
	return &tls.Config{
		RootCAs: s.Pool(t), MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
		Certificates: []tls.Certificate{{Certificate: [][]byte{own.Certificate.Raw, p.ca.Certificate.Raw}, PrivateKey: own.Key}},
	}
}

// TestTheExternalListenerFollowsTheTrustList checks that the listener for peers accepts registered peers under trusted
// CAs. Changes of peers and CAs apply immediately, and close connections that are not allowed any more.
func TestTheExternalListenerFollowsTheTrustList(t *testing.T) {
	ctx := context.Background()
	address := rig.FreeAddress(t, "127.0.0.1")
	s := testserver.Start(t, func(c *server.Config) { c.ExternalListen = address })
	admin := s.Admin(t)
	p := newStranger(t, "peer")
	other, err := p.ca.IssueServer("peer", nil, nil, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	renewed, err := p.ca.IssueServer("peer", nil, p.own.Key, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	if err := knock(address, &tls.Config{RootCAs: s.Pool(t), MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}}); err == nil {
		t.Error("a client without a certificate was let in")
	}
	if err := knock(address, p.with(t, s, p.own)); err == nil {
		t.Error("a client of an unknown CA was let in")
	}
	trust := func() schema.Base64ID {
		t.Helper()
		added, err := admin.AddTrustedCA(ctx, schema.AddTrustedCARequest{Certificate: p.ca.Certificate.Raw})
		if err != nil {
			t.Fatal(err)
		}
		return *added.TrustedCA.CertificateID
	}
	ca := trust()
	if err := knock(address, p.with(t, s, p.own)); err == nil {
		t.Error("a client under a trusted CA was let in that is no registered peer")
	}
	p.register(t, admin, 7)
	if err := knock(address, p.with(t, s, p.own)); err != nil {
		t.Errorf("the peer is registered: %v", err)
	}
	if err := knock(address, p.with(t, s, renewed)); err != nil {
		t.Errorf("the peer renewed its certificate under its key: %v", err)
	}
	if err := knock(address, p.with(t, s, other)); err == nil {
		t.Error("a certificate for another key under the peer's CA was let in")
	}

	for name, shut := range map[string]func() (undo func()){
		"CARemoved": func() func() {
			if _, err := admin.RemoveTrustedCA(ctx, schema.RemoveTrustedCARequest{CertificateID: ca}); err != nil {
				t.Fatal(err)
			}
			return func() { ca = trust() }
		},
		"PeerRemoved": func() func() {
			if _, err := admin.RemoveTrustedServer(ctx, schema.BySystemID{SystemID: 7}); err != nil {
				t.Fatal(err)
			}
			return func() { p.register(t, admin, 7) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			conn := enter(t, address, p.with(t, s, p.own))
			undo := shut()
			if err := knock(address, p.with(t, s, p.own)); err == nil {
				t.Error("it was let in afterwards")
			}
			if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
				t.Errorf("the connection that was let in before is still open: %v", err)
			}
			undo()
			if err := knock(address, p.with(t, s, p.own)); err != nil {
				t.Errorf("let in again: %v", err)
			}
		})
	}
}

// TestTheExternalListenerFollowsRevocations checks that a peer is rejected if the policy uses CRLs and a CRL contains
// its certificate or its CA. Its connections are closed.
func TestTheExternalListenerFollowsRevocations(t *testing.T) {
	ctx := t.Context()
	address := rig.FreeAddress(t, "127.0.0.1")
	s := testserver.Start(t, func(c *server.Config) { c.ExternalListen = address })
	admin := s.Admin(t)
	p, q := newStranger(t, "peer"), newStranger(t, "another peer")
	for i, one := range []stranger{p, q} {
		if _, err := admin.AddTrustedCA(ctx, schema.AddTrustedCARequest{Certificate: one.ca.Certificate.Raw}); err != nil {
			t.Fatal(err)
		}
		one.register(t, admin, 7+i)
	}
	number := int64(0)
	revoke := func(by pki.Identity, what ...*x509.Certificate) {
		t.Helper()
		number++
		if _, err := admin.ImportCRL(ctx, schema.ImportCRLRequest{CRL: enginetest.NewCRL(t, by, number, time.Now(), nil, what...)}); err != nil {
			t.Fatal(err)
		}
	}
	policy := func(ca pki.Identity, mode string) {
		t.Helper()
		if _, err := admin.SetRevocationPolicy(ctx, schema.SetRevocationPolicyRequest{Digest: schema.IssuerDigest(pki.RevocationDigest(ca.Certificate.Raw)), Mode: mode}); err != nil {
			t.Fatal(err)
		}
	}
	closed := func(conn *tls.Conn) {
		t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
			t.Errorf("the connection that was let in before is still open: %v", err)
		}
	}
	out := func(one stranger, reason string) {
		t.Helper()
		if err := knock(address, one.with(t, s, one.own)); err == nil {
			t.Errorf("it was let in although %s", reason)
		}
	}

	revoke(p.ca, p.own.Certificate)
	conn := enter(t, address, p.with(t, s, p.own)) // the policy uses no CRLs
	policy(p.ca, "when-available")
	closed(conn)
	out(p, "it is revoked")
	other := enter(t, address, q.with(t, s, q.own))
	renewed, err := p.ca.IssueServer("peer", nil, p.own.Key, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	anew := enter(t, address, p.with(t, s, renewed)) // the CRL revokes the certificate, but not its key
	revoke(p.ca, p.own.Certificate, renewed.Certificate)
	closed(anew)
	out(p, "it is revoked")

	policy(q.ca, "required")
	closed(other)
	out(q, "there is no evidence")
	revoke(q.ca)
	again := enter(t, address, q.with(t, s, q.own))
	revoke(q.ca, q.ca.Certificate)
	closed(again)
	out(q, "its CA is revoked")
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error) //nolint:errorlint // a connection returns it unwrapped
	return ok && timeout.Timeout()
}

// knock opens a connection and exchanges the first frames.
func knock(address string, cfg *tls.Config) error {
	conn, err := tls.Dial("tcp", address, cfg)
	if err != nil {
		return err
	}
	defer conn.Close()
	return hello(conn) // in TLS 1.3, a refusal arrives after the client has finished its handshake
}

// enter is like knock, but the connection stays open.
func enter(t *testing.T, address string, cfg *tls.Config) *tls.Conn {
	t.Helper()
	conn, err := tls.Dial("tcp", address, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := hello(conn); err != nil {
		t.Fatalf("on a connection that stays open: %v", err)
	}
	return conn
}

func hello(conn net.Conn) error {
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return err
	}
	frames := http2.NewFramer(conn, conn)
	if err := frames.WriteSettings(); err != nil {
		return err
	}
	_, err := frames.ReadFrame()
	return err
}

// TestReplicasTellOfOneCertificate checks that replicas report and present the same certificate, even if another
// replica has renewed it after their start.
func TestReplicasTellOfOneCertificate(t *testing.T) {
	ctx := context.Background()
	database, address := pgtest.Database(t), rig.FreeAddress(t, "127.0.0.1")
	replica := func(change testserver.Option) *testserver.Server {
		return testserver.Start(t, func(c *server.Config) {
			c.DatabaseURL, c.KEK = database, "base64key://smGbjm71Nxd1Ig5FS0wj9SlbzAIrnolCz9bQQ6uAhl4="
		}, change)
	}
	first := replica(func(c *server.Config) { c.ExternalListen = address })
	admin := first.Admin(t)
	before, err := admin.GetLocalTrustInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// Its certificate needs a new name, so the second replica renews it.
	second := replica(func(c *server.Config) { c.ServerName = "another.example" })
	theirs, err := second.Admin(t).GetLocalTrustInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := admin.GetLocalTrustInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(before.Chain, theirs.Chain) || !bytes.Equal(ours.Chain, theirs.Chain) {
		t.Errorf("renewed: %v; the replicas agree: %v", !bytes.Equal(before.Chain, theirs.Chain), bytes.Equal(ours.Chain, theirs.Chain))
	}
	chain, err := pki.ParseChain(ours.Chain)
	if err != nil {
		t.Fatal(err)
	}
	p := newStranger(t, "peer")
	if _, err := admin.AddTrustedCA(ctx, schema.AddTrustedCARequest{Certificate: p.ca.Certificate.Raw}); err != nil {
		t.Fatal(err)
	}
	p.register(t, admin, 7)
	if shown := enter(t, address, p.with(t, first, p.own)).ConnectionState().PeerCertificates[0]; !shown.Equal(chain.Leaf) {
		t.Errorf("shows %v, and tells of %v", shown.SerialNumber, chain.Leaf.SerialNumber)
	}
}
