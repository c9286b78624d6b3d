// Package ldaptest runs a real OpenLDAP server for tests, on loopback ports and with its own certificate. The directory
// has two users under ou=people, and an account that may search for users.
package ldaptest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/need"
)

// The content of the directory.
const (
	Base           = "dc=example,dc=org"
	UserDN         = "uid=%s,ou=people," + Base // a template
	ReaderDN       = "cn=reader," + Base        // may search for users
	ReaderPassword = "the reader's password"
	Ann            = "ann"
	AnnPassword    = "correct horse, \"battery\" staple é"
	// Odd is a name with characters that have a special meaning in distinguished names and filters.
	Odd         = `o'dd, (x=*)\+"#;<>`
	OddPassword = "odd's password"
)

// oddEscaped is Odd, escaped for a distinguished name (RFC 4514).
const oddEscaped = `o'dd\, (x\=*)\\\+\"#\;\<\>`

const ldif = `dn: ` + Base + `
objectClass: dcObject
objectClass: organization
dc: example
o: example

dn: ou=people,` + Base + `
objectClass: organizationalUnit
ou: people

dn: ` + ReaderDN + `
objectClass: person
cn: reader
sn: reader
userPassword: ` + ReaderPassword + `

dn: uid=ann,ou=people,` + Base + `
objectClass: person
objectClass: uidObject
cn: Ann
sn: Twin
uid: ann
userPassword: ` + AnnPassword + `

dn: uid=` + oddEscaped + `,ou=people,` + Base + `
objectClass: person
objectClass: uidObject
cn: Odd
sn: Twin
uid: ` + Odd + `
userPassword: ` + OddPassword + `
`

// startTimeout is long, so that a start on a slow machine does not count as failed.
const startTimeout = time.Minute

// Server is a running OpenLDAP server.
type Server struct {
	Plain  string // host:port of ldap://
	Secure string // host:port of ldaps://
	CAFile string

	dir, program string
	process      *exec.Cmd
	exited       chan struct{}
}

// Option changes the template of the server's certificate.
type Option func(leaf *x509.Certificate)

// Expired makes the certificate end before the test begins.
func Expired(leaf *x509.Certificate) { leaf.NotAfter = time.Now().Add(-time.Minute) }

// Elsewhere issues the certificate for another host.
func Elsewhere(leaf *x509.Certificate) {
	leaf.IPAddresses, leaf.DNSNames = nil, []string{"elsewhere.example"}
}

// Start runs a server until the test ends. With -short, it skips the test.
func Start(t testing.TB, options ...Option) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this needs an OpenLDAP server")
	}
	s := &Server{dir: t.TempDir(), Plain: rig.FreeAddress(t, "127.0.0.1"), Secure: rig.FreeAddress(t, "127.0.0.1")}
	s.program = copyProgram(t, s.dir)
	s.CAFile = s.certify(t, options)
	s.write(t, "slapd.conf", s.config(t))
	s.write(t, "people.ldif", ldif)
	fatal(t, os.Mkdir(filepath.Join(s.dir, "data"), 0o700))
	if out, err := exec.Command(s.program, "-Tadd", "-f", s.path("slapd.conf"), "-l", s.path("people.ldif")).CombinedOutput(); err != nil {
		t.Fatalf("ldaptest: fill the directory: %v\n%s", err, out)
	}
	s.Restart(t)
	t.Cleanup(s.Kill)
	return s
}

// Restart starts the server again after Kill, on the same data and ports.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	log, err := os.OpenFile(s.path("log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	fatal(t, err)
	defer log.Close() //nolint:errcheck // the server has its own descriptor
	cmd := exec.Command(s.program, "-f", s.path("slapd.conf"), "-h", "ldap://"+s.Plain+" ldaps://"+s.Secure, "-d", "0")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = rig.EndWithTest(syscall.SIGKILL)
	fatal(t, cmd.Start())
	exited := make(chan struct{})
	s.process, s.exited = cmd, exited
	go func() {
		_ = cmd.Wait() // the server's log shows why it exited
		close(exited)
	}()
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", s.Secure)
		if err == nil {
			conn.Close()
			return
		}
		select {
		case <-exited:
		default:
			if time.Now().Before(deadline) {
				continue
			}
		}
		text, _ := os.ReadFile(s.path("log"))
		t.Fatalf("ldaptest: slapd does not start: %v\n%s", err, text)
	}
}

// Kill ends the server immediately, like a crash. It does nothing if the server is not
// running.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	_ = s.process.Process.Kill() // fails only if the process has ended
	<-s.exited
	s.process = nil
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

func (s *Server) write(t testing.TB, name, content string) {
	t.Helper()
	fatal(t, os.WriteFile(s.path(name), []byte(content), 0o600))
}

func (s *Server) config(t testing.TB) string {
	t.Helper()
	return strings.Join([]string{
		"include " + schema(t), "modulepath /usr/lib/ldap", "moduleload back_mdb", "pidfile " + s.path("pid"),
		"TLSCertificateFile " + s.path("tls.crt"), "TLSCertificateKeyFile " + s.path("tls.key"),
		"allow bind_anon_cred", // accepts a bind with a name and no password, like many directories
		"database mdb", `suffix "` + Base + `"`, "directory " + s.path("data"),
		"access to attrs=userPassword by anonymous auth by * none",
		`access to * by dn.exact="` + ReaderDN + `" read by * none`, "",
	}, "\n")
}

// schema returns the path of the standard schema. It depends on the Linux distribution.
func schema(t testing.TB) string {
	t.Helper()
	for _, path := range []string{"/etc/ldap/schema/core.schema", "/etc/openldap/schema/core.schema"} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Fatal("ldaptest: OpenLDAP's core.schema is not where Debian puts it")
	return ""
}

// copyProgram copies slapd into the test's directory, because AppArmor may allow the installed program to read only the
// directories of the system service.
func copyProgram(t testing.TB, dir string) string {
	t.Helper()
	from := os.Getenv("RIG_SLAPD")
	for _, path := range []string{"/usr/sbin/slapd", "/usr/local/sbin/slapd"} {
		if _, err := os.Stat(path); err == nil && from == "" {
			from = path
		}
	}
	if from == "" {
		need.Missing(t, "OpenLDAP's server", "make test, which installs it, or set RIG_SLAPD")
	}
	content, err := os.ReadFile(from)
	fatal(t, err)
	to := filepath.Join(dir, "slapd")
	fatal(t, os.WriteFile(to, content, 0o700))
	return to
}

// certify creates a CA and the server's certificate. It returns the path of the CA certificate.
func (s *Server) certify(t testing.TB, options []Option) string {
	t.Helper()
	caKey, key := newKey(t), newKey(t)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA of the directory"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "directory"}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, o := range options {
		o(leaf)
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	fatal(t, err)
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	fatal(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	fatal(t, err)
	s.write(t, "ca.crt", block("CERTIFICATE", caDER))
	s.write(t, "tls.crt", block("CERTIFICATE", leafDER))
	s.write(t, "tls.key", block("PRIVATE KEY", keyDER))
	return s.path("ca.crt")
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fatal(t, err)
	return key
}

func block(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(fmt.Errorf("ldaptest: %w", err))
	}
}
