package program

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Server is a running "serve" process.
type Server struct {
	*Process
	Address string // host:port of the API
	DataDir string
}

var readyLine = regexp.MustCompile(`(?m)^ready: https?://(\S+) `)

// Serve starts "serve" on a free loopback port and waits until it is ready. The caller must call Stop or Kill.
func (p Program) Serve(dataDir string, args ...string) (*Server, error) {
	s, err := p.Begin(dataDir, args...)
	if err != nil {
		return nil, err
	}
	if err := s.awaitReady(); err != nil {
		s.Kill()
		return nil, err
	}
	return s, nil
}

// Begin starts "serve" and does not wait for it.
func (p Program) Begin(dataDir string, args ...string) (*Server, error) {
	process, err := p.Start(append([]string{"serve", "--listen", "127.0.0.1:0", "--external-listen", "", "--data-dir", dataDir}, args...)...)
	return &Server{Process: process, DataDir: dataDir}, err
}

func (s *Server) awaitReady() error {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		grown := s.log.Grown()
		if m := readyLine.FindStringSubmatch(s.log.String()); m != nil {
			s.Address = m[1]
			return nil
		}
		select {
		case <-grown:
		case <-s.exited:
			return fmt.Errorf("serve ended before it was ready: %w\n%s", s.err, s.log)
		case <-timeout.C:
			return fmt.Errorf("serve is not ready after %s\n%s", patience, s.log)
		}
	}
}

// Password returns the generated first password of admin.
func (s *Server) Password() (string, error) {
	text, err := os.ReadFile(filepath.Join(s.DataDir, "bootstrap-password"))
	return strings.TrimSpace(string(text)), err
}

// Roots returns the CA certificates that a client has to trust.
func Roots(dataDir string) (*x509.CertPool, error) {
	text, err := os.ReadFile(filepath.Join(dataDir, "ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("ca.crt holds no certificate")
	}
	return pool, nil
}

// BaseURL is the URL for clients of Transport. No process listens on its port.
const BaseURL = "https://127.0.0.1:1"

// Transport returns a transport whose new connections use the current result of address, because a killed server
// restarts on another port.
func Transport(roots *x509.CertPool, address func() string) *http.Transport {
	dialer := net.Dialer{Timeout: patience}
	return &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
		MaxIdleConnsPerHost: 64,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address())
		},
	}
}
