// Package testserver runs a complete server in a test, with real TLS, a real database and the real API.
package testserver

import (
	"context"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password/passwordtest"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
)

// Names and password of the first administrator and of the officer in a split deployment. Both have the same password.
const (
	AdminName     = "admin"
	AdminPassword = "correct horse battery staple"
	OfficerName   = "officer"
)

// Server is a running server. To restart it on the same address and data, call Stop and then Restart.
type Server struct {
	*server.Server
	cfg server.Config
}

// Option changes the configuration before the start.
type Option func(*server.Config)

// Start runs a server until the test ends.
func Start(t testing.TB, options ...Option) *Server {
	t.Helper()
	dir := t.TempDir()
	password := filepath.Join(dir, "first-password")
	if err := os.WriteFile(password, []byte(AdminPassword+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Server{cfg: server.Config{
		Listen: "127.0.0.1:0", TLSMinVersion: server.TLS13, DataDir: filepath.Join(dir, "data"), ServerName: "test",
		Deployment: string(keyserver.Unified), Admission: server.AdmissionOff,
		BootstrapPasswordFile: password, BootstrapOfficerPasswordFile: password,
		PeerTimeout: peer.DefaultTimeout,
		SessionIdle: session.DefaultIdle, SessionLifetime: session.DefaultLifetime,
		ScopedLifetime: session.DefaultScopedLifetime, PasswordCost: passwordtest.Cost, Limits: server.DefaultLimits(),
		Version: keyserver.Version{Minor: 1, Banner: "test"}, Logger: slog.New(slog.DiscardHandler), Clock: time.Now,
	}}
	for _, o := range options {
		o(&s.cfg)
	}
	if err := s.cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	s.Restart(t)
	t.Cleanup(func() { s.Stop(t) })
	return s
}

// Stop drains and stops the server. Stopping a stopped server does nothing.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if s.Server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	// After 29 of 30 seconds, collect the stacks of all goroutines to show which of them still run.
	held := make(chan string, 1)
	late := time.AfterFunc(29*time.Second, func() {
		var stacks strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&stacks, 2)
		held <- stacks.String()
	})
	err := s.Shutdown(ctx)
	switch late.Stop(); {
	case err == nil:
	case ctx.Err() != nil:
		t.Errorf("stop the server: %v\n%s", err, <-held)
	default:
		t.Errorf("stop the server: %v", err)
	}
	s.Server = nil
}

// Restart starts a stopped server again on the same address. The options change its configuration before the start.
func (s *Server) Restart(t testing.TB, changes ...Option) {
	t.Helper()
	for _, change := range changes {
		change(&s.cfg)
	}
	running, err := server.Start(context.Background(), s.cfg)
	if err != nil {
		t.Fatalf("start the server: %v", err)
	}
	s.Server = running
	s.cfg.Listen = running.Address()
}

// Config returns the configuration of the last start.
func (s *Server) Config() server.Config { return s.cfg }

// Pool returns the CA certificates that clients have to trust.
func (s *Server) Pool(t testing.TB) *x509.CertPool {
	t.Helper()
	pool, err := s.Roots()
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// CA returns the CA certificates that clients have to trust, as PEM.
func (s *Server) CA(t testing.TB) []byte {
	t.Helper()
	pem, err := os.ReadFile(s.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	return pem
}

// Client returns a client that logs in with a name and password.
func (s *Server) Client(t testing.TB, name, password string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{
		BaseURL: s.URL(), RootCAs: s.Pool(t),
		Credentials: client.PasswordCredentials(name, func(context.Context) (string, error) { return password, nil }),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Admin returns a client that logs in as the first administrator.
func (s *Server) Admin(t testing.TB) *client.Client {
	t.Helper()
	return s.Client(t, AdminName, AdminPassword)
}
