package install

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	apiclient "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/test/program"
)

// Two replicas run as config/overlays/postgres describes them, over one PostgreSQL, with only their service
// account's token. A change on one is visible on the other, and both have the cluster check tokens.
func TestScaledOutRuns(t *testing.T) {
	objects := build(t, postgres)
	apply(t, objects)
	certificate, key, roots := selfSigned(t)
	kek := make([]byte, 32)
	if _, err := rand.Read(kek); err != nil {
		t.Fatal(err)
	}
	secrets := map[string]map[string]string{
		"keyserver-database": {"url": overNetwork(t, pgtest.Database(t))},
		"keyserver-kek":      {"url": "base64key://" + base64.StdEncoding.EncodeToString(kek)},
	}
	real := issuer(t)
	replica := func() (*process, *apiclient.Client, map[string]string) {
		pod := newPod(t, objects, "keyserver-api")
		pod.secrets, pod.settings["KEYSERVER_OIDC_ISSUER"] = secrets, real
		pod.put("tls", "tls.crt", certificate)
		pod.put("tls", "tls.key", key)
		r := pod.start("api")
		over := program.Transport(roots, func() string { return r.ports["api"] })
		r.awaitReady(t)
		return r, administrator(t, over, pod.settings), pod.settings
	}
	first, one, settings := replica()
	second, other, _ := replica()

	enroll(t, one, settings)
	for _, r := range []*process{first, second} {
		login(t, "https://"+r.ports["api"], roots, settings)
	}
	minted, err := one.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	if err != nil {
		t.Fatal(err)
	}
	first.kill()
	if grant, err := other.AuthorizeKey(t.Context(), schema.AuthorizeKeyRequest{TTag: minted.TTag}); err != nil || !grant.Authorized {
		t.Errorf("a key that a killed replica made: %+v, %v", grant, err)
	}
	second.terminate(t)

	// The manager of this form has no writable volume.
	manager := newPod(t, objects, "keyserver")
	for _, m := range manager.containers["manager"].VolumeMounts {
		if m.Name != "kubernetes-token" && m.Name != "key-server-token" {
			t.Errorf("the manager mounts %s, too", m.Name)
		}
	}
	alone := manager.start("manager")
	alone.awaitReady(t)
	alone.terminate(t)
}

// overNetwork forwards TCP connections to a database that listens on a socket, for processes that cannot access the
// directory of the socket.
func overNetwork(t *testing.T, database string) string {
	t.Helper()
	from, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(from.Query().Get("host"), ".s.PGSQL.5432")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			here, err := listener.Accept()
			if err != nil {
				return // the listener was closed
			}
			there, err := net.Dial("unix", socket)
			if err != nil {
				_ = here.Close()
				continue
			}
			relay := func(to, from net.Conn) {
				_, _ = io.Copy(to, from) // when one side ends, both are closed
				_ = to.Close()
			}
			go relay(here, there)
			go relay(there, here)
		}
	}()
	return fmt.Sprintf("postgres://%s@%s%s?sslmode=disable", from.User.Username(), listener.Addr(), from.Path)
}

// selfSigned returns the content of the Secret keyserver-tls.
func selfSigned(t *testing.T) (certificate, key string, roots *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "keyserver"},
		DNSNames: []string{"keyserver.keyserver-system.svc"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certificate = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(certificate))
	return certificate, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})), roots
}
