package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/fips140"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
)

func TestOldTLSIsRefused(t *testing.T) {
	modern := testserver.Start(t)
	older := testserver.Start(t, func(c *server.Config) { c.TLSMinVersion = server.TLS12 })
	unlessFIPS := uint16(tls.VersionTLS12)
	if fips140.Enabled() {
		unlessFIPS = 0
	}
	cases := map[string]struct {
		reason string
		server *testserver.Server
		from   uint16
		to     uint16
		suites []uint16
		want   uint16 // expected version; 0: refused
	}{
		"Default12":  {"1.3 is the default", modern, tls.VersionTLS12, tls.VersionTLS12, nil, 0},
		"Default13":  {"and is spoken", modern, tls.VersionTLS12, tls.VersionTLS13, nil, tls.VersionTLS13},
		"Flag11":     {"the flag goes no lower than 1.2", older, tls.VersionTLS10, tls.VersionTLS11, nil, 0},
		"Flag12":     {"the flag allows 1.2", older, tls.VersionTLS12, tls.VersionTLS12, nil, tls.VersionTLS12},
		"Flag13":     {"the newer one is taken where both can", older, tls.VersionTLS12, tls.VersionTLS13, nil, tls.VersionTLS13},
		"FlagChaCha": {"authenticated encryption, not approved by FIPS 140-3", older, tls.VersionTLS12, tls.VersionTLS12, []uint16{tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256}, unlessFIPS},
		"FlagCBC":    {"encryption that is not authenticated", older, tls.VersionTLS12, tls.VersionTLS12, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA}, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			conn, err := tls.Dial("tcp", tc.server.Address(), &tls.Config{
				RootCAs: tc.server.Pool(t), MinVersion: tc.from, MaxVersion: tc.to, CipherSuites: tc.suites,
			})
			if err != nil {
				if tc.want != 0 {
					t.Errorf("%s: %v", tc.reason, err)
				}
				return
			}
			defer conn.Close()
			if got := conn.ConnectionState().Version; got != tc.want {
				t.Errorf("%s: got %s", tc.reason, tls.VersionName(got))
			}
		})
	}
}

// TestNoConnectionIsResumed checks that the server resumes no TLS session, because a resumed session would keep the
// client's identity from an earlier handshake.
func TestNoConnectionIsResumed(t *testing.T) {
	s := testserver.Start(t, func(c *server.Config) { c.TLSMinVersion = server.TLS12 })
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		cfg := &tls.Config{RootCAs: s.Pool(t), MinVersion: version, MaxVersion: version, ClientSessionCache: tls.NewLRUClientSessionCache(8)}
		for range 3 {
			conn, err := tls.Dial("tcp", s.Address(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			// In TLS 1.3, tickets are sent after the handshake, with the first response.
			if _, err := io.WriteString(conn, "GET /api/health HTTP/1.1\r\nHost: keyserver\r\nConnection: close\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(conn); err != nil {
				t.Fatal(err)
			}
			if conn.ConnectionState().DidResume {
				t.Errorf("%s: resumed", tls.VersionName(version))
			}
			_ = conn.Close()
		}
	}
}

// TestASilentConnectionKeepsNobodyOut checks that silent connections do not block other clients, even while the server
// checks connections after a CA was removed.
func TestASilentConnectionKeepsNobodyOut(t *testing.T) {
	s := testserver.Start(t)
	admin := s.Admin(t)
	for range 3 {
		silent, err := net.Dial("tcp", s.Address())
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
	}
	ca, err := pki.NewCA("outside", time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	added, err := admin.AddTrustedCA(t.Context(), schema.AddTrustedCARequest{Certificate: ca.Certificate.Raw})
	if err != nil {
		t.Fatal(err)
	}
	mine := clientOf(t, ca)
	conn, err := tls.Dial("tcp", s.Address(), &tls.Config{RootCAs: s.Pool(t), MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{mine}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// A connection without a request is checked at its first request.
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RemoveTrustedCA(t.Context(), schema.RemoveTrustedCARequest{CertificateID: *added.TrustedCA.CertificateID}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.GetHealth(t.Context()); err != nil {
		t.Errorf("somebody else: %v", err)
	}
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, "GET /api/health HTTP/1.1\r\nHost: keyserver\r\n\r\n")
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection of the removed CA is still open")
	}
}

// TestTheAPIShowsTheReplacedCertificate checks that a running server uses changed files of --tls-cert.
func TestTheAPIShowsTheReplacedCertificate(t *testing.T) {
	t.Parallel() // it waits until the files are read again
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	ca, err := pki.NewCA("files", time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	writePair(t, ca, "one", cert, key)
	s := testserver.Start(t, func(c *server.Config) { c.TLSCert, c.TLSKey = cert, key })
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate)
	shown := func() string {
		conn, err := tls.Dial("tcp", s.Address(), &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13, ServerName: "localhost"})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if shown() != "one" {
		t.Fatal("does not show the certificate that it was given")
	}
	writePair(t, ca, "two", cert, key)
	for deadline := time.Now().Add(time.Minute); shown() != "two"; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("still shows the certificate that was replaced")
		}
	}
}

func clientOf(t *testing.T, ca pki.Identity) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "client"}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca.Certificate, key.Public(), ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func writePair(t *testing.T, ca pki.Identity, name, cert, key string) {
	t.Helper()
	id, err := ca.IssueServer(name, []string{"localhost", "127.0.0.1"}, nil, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(id.Key)
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{
		cert: pki.EncodePEM(id.Certificate.Raw), key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
