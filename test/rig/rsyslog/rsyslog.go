// Package rsyslog runs Debian's rsyslogd for tests, as a receiver over TLS that requires client certificates. make
// provides the program for packages that import it (hack/needs.sh).
package rsyslog

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

const (
	// clientName is the certificate name that the receiver accepts.
	clientName = "keyserver.example"
	variable   = "RIG_RSYSLOGD"
)

// template writes one line per message, with the parsed HOSTNAME, APP-NAME, MSGID, PRI and MSG.
const template = `template(name="parsed" type="list") {
	property(name="hostname") constant(value=" ") property(name="app-name") constant(value=" ")
	property(name="msgid") constant(value=" ") property(name="pri") constant(value=" ") property(name="msg") constant(value="\n") }
`

// Server is a running receiver. Its address and its file stay the same over restarts.
type Server struct {
	// URL is the URL of the receiver, with the certificates that it requires.
	URL     string
	Address string
	File    string // file of the received messages

	dir     string
	driver  string
	process *exec.Cmd
	exited  chan struct{}
}

// Line is a message that rsyslog parsed.
type Line struct{ Host, App, ID, Priority, Message string }

// Start runs a receiver until the test ends. driver is a TLS driver of rsyslog: ossl or gtls.
func Start(t testing.TB, driver string) *Server {
	t.Helper()
	need.Server(t, "rsyslog", "make test-system")
	s := &Server{Address: rig.FreeAddress(t, "127.0.0.1"), dir: t.TempDir(), driver: driver}
	s.File = s.path("messages")
	s.certify(t)
	s.URL = fmt.Sprintf("syslog+tls://%s?ca=%s&cert=%s&key=%s", s.Address, s.path("ca.crt"), s.path("client.crt"), s.path("client.key"))
	_, port, err := net.SplitHostPort(s.Address)
	rig.Must(t, err)
	// The ruleset has no queue, so that each message is in the file before rsyslog reads the next one.
	rig.Must(t, os.WriteFile(s.path("conf"), []byte(fmt.Sprintf(`
global(workDirectory=%q maxMessageSize="64k" net.enableDNS="off" defaultNetstreamDriver="%s"
	defaultNetstreamDriverCAFile=%q defaultNetstreamDriverCertFile=%q defaultNetstreamDriverKeyFile=%q)
module(load="imtcp" streamDriver.name="%s" streamDriver.mode="1" streamDriver.authMode="x509/name" permittedPeer=[%q])
%s
ruleset(name="audit" queue.type="Direct") { action(type="omfile" file=%q template="parsed") }
input(type="imtcp" address="127.0.0.1" port="%s" ruleset="audit")
`, s.dir, driver, s.path("ca.crt"), s.path("server.crt"), s.path("server.key"), driver, clientName, template, s.File, port)), 0o600))
	s.Restart(t)
	t.Cleanup(s.Kill)
	return s
}

// Restart starts a killed receiver and waits until it listens.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	program := os.Getenv(variable)
	if program == "" {
		need.Missing(t, "rsyslogd", "make test, which installs it, or set "+variable)
	}
	_ = os.Remove(s.path("pid"))
	said := &rig.Output{}
	s.process = exec.Command(program, "-n", "-f", s.path("conf"), "-i", s.path("pid"))
	s.process.Stdout, s.process.Stderr = said, said
	s.process.SysProcAttr = rig.EndWithTest(syscall.SIGKILL)
	rig.Must(t, s.process.Start())
	exited := make(chan struct{})
	s.exited = exited
	go func() { _ = s.process.Wait(); close(exited) }()
	rig.Soon(t, "rsyslogd listens", func() bool {
		select {
		case <-exited:
			t.Fatalf("rsyslogd ended: %s", said)
		default:
		}
		conn, err := net.Dial("tcp", s.Address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

// Kill kills the process with SIGKILL.
func (s *Server) Kill() {
	_ = s.process.Process.Kill() // it fails only for a process that has ended
	<-s.exited
}

// Lines returns the messages in the file. It ignores an incomplete line at the end.
func (s *Server) Lines(t testing.TB) []Line {
	t.Helper()
	text, err := os.ReadFile(s.File)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var list []Line
	for line := range strings.Lines(string(text)) {
		words := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 5)
		if len(words) == 5 && strings.HasSuffix(line, "\n") {
			list = append(list, Line{words[0], words[1], words[2], words[3], words[4]})
		}
	}
	return list
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

// certify creates a CA, a server certificate and a client certificate.
func (s *Server) certify(t testing.TB) {
	t.Helper()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "rsyslog's CA"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	rig.Must(t, err)
	s.issue(t, "ca", ca, ca, key, key)
	for i, name := range []string{"server", "client"} {
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(int64(2 + i)), Subject: pkix.Name{CommonName: clientName}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
			DNSNames: []string{clientName}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		rig.Must(t, err)
		s.issue(t, name, leaf, ca, own, key)
	}
}

func (s *Server) issue(t testing.TB, name string, leaf, ca *x509.Certificate, own, by *ecdsa.PrivateKey) {
	t.Helper()
	cert, err := x509.CreateCertificate(rand.Reader, leaf, ca, own.Public(), by)
	rig.Must(t, err)
	key, err := x509.MarshalPKCS8PrivateKey(own)
	rig.Must(t, err)
	rig.Must(t, os.WriteFile(s.path(name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
	rig.Must(t, os.WriteFile(s.path(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
}
