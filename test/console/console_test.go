// Package console tests the web console of a real server in a real browser.
package console

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/browser"
	"github.com/keyserver-operator/keyserver-operator/test/rig/node"
)

var built program.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m, &built, false)) }

// TestConsole runs the steps in console.test.mjs. RIG_SCREENSHOTS names a directory for screenshots of each view.
func TestConsole(t *testing.T) {
	chromium := browser.Chromium(t)
	dir := node.Install(t, "console.test.mjs")
	compileClient(t, filepath.Join(dir, "client"))
	metrics := rig.FreeAddress(t, "127.0.0.1")
	server := serve(t, "--console", "--metrics-listen", metrics)
	peer := serve(t, "--system-id", "2", "--server-name", "127.0.0.3", "--external-listen", "127.0.0.3:0")
	ca, certificate := clientCertificate(t, dir)
	environment := []string{
		"RIG_CHROMIUM=" + chromium, "KEYSERVER_URL=https://" + server.Address, "KEYSERVER_PEER_URL=https://" + peer.Address,
		"KEYSERVER_METRICS=http://" + metrics + "/metrics",
		"KEYSERVER_PASSWORD=" + password(t, server), "KEYSERVER_PEER_PASSWORD=" + password(t, peer),
		"KEYSERVER_SPKI=" + publicKeyHash(t, server), "KEYSERVER_CLIENT_CA=" + ca, "KEYSERVER_CLIENT=" + certificate,
		"NODE_EXTRA_CA_CERTS=" + trusted(t, dir, server, peer),
	}
	t.Log(node.Run(t, dir, environment, "node", "--test", "--test-reporter=spec", "console.test.mjs"))
}

func serve(t *testing.T, args ...string) *program.Server {
	t.Helper()
	s, err := built.Serve(filepath.Join(t.TempDir(), "data"), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}

func password(t *testing.T, s *program.Server) string {
	t.Helper()
	secret, err := s.Password()
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// compileClient compiles the TypeScript client. The test calls the servers with the same client as the console.
func compileClient(t *testing.T, into string) {
	t.Helper()
	root, err := rig.Root()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(root, "clients", "typescript")
	node.Run(t, source, nil, filepath.Join(node.Packages(t, source), ".bin", "tsc"), "-p", ".", "--outDir", into)
}

// trusted returns a file with the CA certificates of the servers.
func trusted(t *testing.T, dir string, servers ...*program.Server) string {
	t.Helper()
	var all []byte
	for _, s := range servers {
		text, err := os.ReadFile(filepath.Join(s.DataDir, "ca.crt"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text...)
	}
	return write(t, dir, "trusted.pem", all)
}

// publicKeyHash returns the hash of the server's public key, which makes the browser trust its certificate.
func publicKeyHash(t *testing.T, s *program.Server) string {
	t.Helper()
	roots, err := program.Roots(s.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", s.Address, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sum := sha256.Sum256(conn.ConnectionState().PeerCertificates[0].RawSubjectPublicKeyInfo)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// clientCertificate creates a CA, and a client certificate with its key. It returns the paths without ".crt" and
// ".key".
func clientCertificate(t *testing.T, dir string) (ca, certificate string) {
	t.Helper()
	now := time.Now()
	template := func(serial int64, name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
			NotBefore: now.Add(-time.Minute), NotAfter: now.Add(24 * time.Hour), BasicConstraintsValid: true,
		}
	}
	root := template(1, "people")
	root.IsCA, root.KeyUsage = true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
	rootKey := newKey(t)
	signedRoot := sign(t, root, root, &rootKey.PublicKey, rootKey)
	leaf := template(2, "auditor")
	leaf.KeyUsage, leaf.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	leafKey := newKey(t)
	issuer, err := x509.ParseCertificate(signedRoot)
	if err != nil {
		t.Fatal(err)
	}
	signedLeaf := sign(t, leaf, issuer, &leafKey.PublicKey, rootKey)
	key, err := x509.MarshalPKCS8PrivateKey(leafKey)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "auditor.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	write(t, dir, "people.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signedRoot}))
	write(t, dir, "auditor.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signedLeaf}))
	return filepath.Join(dir, "people"), filepath.Join(dir, "auditor")
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t *testing.T, template, issuer *x509.Certificate, public *ecdsa.PublicKey, by *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, public, by)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func write(t *testing.T, dir, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
