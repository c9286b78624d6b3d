package tlscert

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ca"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// secretDir has the structure of a mounted Secret: the file names are links into a directory that is replaced.
type secretDir struct{ dir string }

func (d secretDir) cert() string { return filepath.Join(d.dir, "tls.crt") }
func (d secretDir) key() string  { return filepath.Join(d.dir, "tls.key") }

func newSecretDir(t *testing.T, cert, key []byte) secretDir {
	t.Helper()
	d := secretDir{t.TempDir()}
	d.swap(t, cert, key)
	check(t, os.Symlink("..data/tls.crt", d.cert()))
	check(t, os.Symlink("..data/tls.key", d.key()))
	return d
}

func (d secretDir) swap(t *testing.T, cert, key []byte) {
	t.Helper()
	version, err := os.MkdirTemp(d.dir, "..version-*") //nolint:usetesting // in the directory of the link to it
	check(t, err)
	check(t, os.WriteFile(filepath.Join(version, "tls.crt"), cert, 0o600))
	check(t, os.WriteFile(filepath.Join(version, "tls.key"), key, 0o600))
	link := filepath.Join(d.dir, "..data_tmp")
	check(t, os.Symlink(filepath.Base(version), link))
	check(t, os.Rename(link, filepath.Join(d.dir, "..data")))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newPair(t *testing.T, name string, now time.Time) (cert, key []byte) {
	t.Helper()
	ca, err := pki.NewCA("files", now, rand.Reader)
	check(t, err)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	leaf, err := ca.IssueServer(name, []string{"localhost"}, private, now, rand.Reader)
	check(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	check(t, err)
	return pki.EncodePEM(leaf.Certificate.Raw), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func TestTheFilesOfTheCertificateAreTakenOverWhenTheyChange(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	oneCert, oneKey := newPair(t, "one", now)
	twoCert, twoKey := newPair(t, "two", now)
	oldCert, oldKey := newPair(t, "old", now.AddDate(-2, 0, 0))
	nextCert, nextKey := newPair(t, "next", now.Add(2*time.Hour))
	dir := newSecretDir(t, oneCert, oneKey)
	var log bytes.Buffer
	f, err := OpenFiles(dir.cert(), dir.key(), func() time.Time { return now }, slog.New(slog.NewTextHandler(&log, nil)))
	check(t, err)
	steps := []struct {
		reason  string
		change  func()
		shown   string
		failing bool
	}{
		{"nothing changed", func() {}, "one", false},
		{"a certificate without its key", func() { dir.swap(t, twoCert, oneKey) }, "one", true},
		{"and still", func() {}, "one", true},
		{"no certificate at all", func() { dir.swap(t, []byte("nonsense"), oneKey) }, "one", true},
		{"gone", func() { check(t, os.Remove(filepath.Join(dir.dir, "..data"))) }, "one", true},
		{"still gone", func() {}, "one", true},
		{"another pair", func() { dir.swap(t, twoCert, twoKey) }, "two", false},
		{"an expired one", func() { dir.swap(t, oldCert, oldKey) }, "two", true},
		{"the same as is shown", func() { dir.swap(t, twoCert, twoKey) }, "two", false},
		{"one that becomes valid later", func() { dir.swap(t, nextCert, nextKey) }, "two", true},
		{"the same when it is valid", func() { now = now.Add(2 * time.Hour) }, "next", false},
		{"a damaged certificate before a good one", func() {
			dir.swap(t, append([]byte("-----BEGIN CERTIFICATE-----\nAAA\n-----END CERTIFICATE-----\n"), twoCert...), twoKey)
		}, "next", true},
		{"written in place", func() {
			check(t, os.Remove(dir.cert()))
			check(t, os.Remove(dir.key()))
			check(t, os.WriteFile(dir.cert(), oneCert, 0o600))
			check(t, os.WriteFile(dir.key(), oneKey, 0o600))
		}, "one", false},
	}
	for _, s := range steps {
		s.change()
		f.Look()
		cert, err := f.GetCertificate(nil)
		if err != nil || cert.Leaf.Subject.CommonName != s.shown {
			t.Errorf("%s: shows %v, %v; want %s", s.reason, cert.Leaf.Subject, err, s.shown)
		}
		part := f.Readiness()
		if !part.Ready || strings.Contains(part.Detail, "cannot be used") != s.failing {
			t.Errorf("%s: readiness is %+v", s.reason, part)
		}
		if strings.Contains(part.Detail, dir.dir) {
			t.Errorf("%s: strangers are told a path: %s", s.reason, part.Detail)
		}
	}
	if failures := testutil.ToFloat64(f.Failures); failures != 6 {
		t.Errorf("counted %v failures, want one for each of the 6", failures)
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 6 {
		t.Errorf("a failure is logged once, got %d records:\n%s", n, log.String())
	}
	if !strings.Contains(log.String(), "it becomes valid on 2026-03-01T13:55:00Z") {
		t.Errorf("the log does not say when the certificate becomes valid:\n%s", log.String())
	}
	if strings.Contains(log.String(), "PRIVATE KEY") {
		t.Error("the log holds a key")
	}
}

// newTestCertificate returns an Issued with one CA. keep returns the server's certificate.
func newTestCertificate(t *testing.T, authority pki.Identity, keep func() (pki.Identity, error)) *Issued {
	t.Helper()
	line := ca.Authorities{Issuer: authority, Members: []ca.Member{{Authority: keyserver.Authority{State: keyserver.AuthorityActive}, Parsed: authority.Certificate}}}
	o, err := Issue(t.Context(), IssuedConfig{
		Ensure:  func(context.Context) (pki.Identity, ca.Authorities, error) { id, err := keep(); return id, line, err },
		Publish: func([]*x509.Certificate) error { return nil }, Clock: func() time.Time { return authority.Certificate.NotBefore },
		Logger: slog.New(slog.DiscardHandler),
	})
	check(t, err)
	return o
}

// issuedTwice returns a CA, and two certificates that it issued for one key.
func issuedTwice(t *testing.T) (authority, first, second pki.Identity) {
	t.Helper()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	authority, err := pki.NewCA("internal", now, rand.Reader)
	check(t, err)
	first, err = authority.IssueServer("keys", []string{"localhost"}, nil, now, rand.Reader)
	check(t, err)
	second, err = authority.IssueServer("keys", []string{"localhost"}, first.Key, now, rand.Reader)
	check(t, err)
	return authority, first, second
}

func TestTheOwnCertificateIsRenewedWhileTheServerRuns(t *testing.T) {
	ca, first, second := issuedTwice(t)
	kept, failure := first, error(nil)
	o := newTestCertificate(t, ca, func() (pki.Identity, error) { return kept, failure })
	for _, s := range []struct {
		reason string
		kept   pki.Identity
		err    error
		want   pki.Identity
	}{
		{"it is good for long", first, nil, first},
		{"the database does not answer", pki.Identity{}, errors.New("down"), first},
		{"it was renewed", second, nil, second},
		{"and the database is down again", pki.Identity{}, errors.New("down"), second},
	} {
		kept, failure = s.kept, s.err
		if err := o.renew(t.Context()); !errors.Is(err, s.err) {
			t.Errorf("%s: %v", s.reason, err)
		}
		cert, err := o.GetCertificate(&tls.ClientHelloInfo{})
		if err != nil || !cert.Leaf.Equal(s.want.Certificate) || len(cert.Certificate) != 2 {
			t.Errorf("%s: shows %v, %v", s.reason, cert.Leaf.SerialNumber, err)
		}
		if told := o.Present(t.Context()); !told.Equal(s.want.Certificate) {
			t.Errorf("%s: tells of %v", s.reason, told.SerialNumber)
		}
	}
}

// TestTheOwnCertificateIsThatOfTheDatabaseWhenItIsAskedFor checks that Present returns the certificate of the database,
// and that later handshakes use it.
func TestTheOwnCertificateIsThatOfTheDatabaseWhenItIsAskedFor(t *testing.T) {
	ca, first, second := issuedTwice(t)
	kept := first
	o := newTestCertificate(t, ca, func() (pki.Identity, error) { return kept, nil })
	kept = second
	if told := o.Present(t.Context()); !told.Equal(second.Certificate) {
		t.Errorf("tells of %v", told.SerialNumber)
	}
	if shown := o.current.Load().api.Leaf; !shown.Equal(second.Certificate) {
		t.Errorf("shows %v", shown.SerialNumber)
	}
}

// TestTroubleWithTheOwnCertificate checks that errors distinguish the certificate from its CA. Only an error of the CA
// needs an administrator.
func TestTroubleWithTheOwnCertificate(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	later := now.Add(time.Hour)
	ca, err := pki.NewCA("internal", now, rand.Reader)
	check(t, err)
	leaf, err := ca.IssueServer("keys", []string{"localhost"}, nil, later, rand.Reader)
	check(t, err)
	o := newTestCertificate(t, ca, func() (pki.Identity, error) { return leaf, nil })
	for _, s := range []struct {
		at     time.Time
		detail string // part of the expected error; empty: no error
	}{
		{ca.Certificate.NotBefore.Add(-time.Second), "the internal CA is not valid before"},
		{ca.Certificate.NotBefore, "own certificate is not valid before"},
		{leaf.Certificate.NotBefore.Add(-time.Second), "own certificate is not valid before"},
		{leaf.Certificate.NotBefore, ""},
		{leaf.Certificate.NotAfter.Add(-time.Second), ""},
		{leaf.Certificate.NotAfter, "own certificate expired"},
		{ca.Certificate.NotAfter, "the internal CA expired"},
	} {
		o.Clock = func() time.Time { return s.at }
		switch err := o.Trouble(); {
		case s.detail == "" && err != nil, s.detail != "" && (err == nil || !strings.Contains(err.Error(), s.detail)):
			t.Errorf("at %s: %v, want %q", s.at, err, s.detail)
		}
	}
}
