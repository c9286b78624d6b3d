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
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// patience bounds every wait for a process. It is generous, because it must
// only tell a slow machine from a process that hangs.
const patience = 2 * time.Minute

// Server is a running "serve" process.
type Server struct {
	Address string // host:port of the API
	DataDir string

	cmd    *exec.Cmd
	log    *rig.Output
	exited chan struct{}
	err    error // of the process, once exited is closed
}

var readyLine = regexp.MustCompile(`(?m)^ready: https?://(\S+) `)

// Serve starts "serve" on a free port of the loopback interface and waits for
// the line that says it is ready. It does not end by itself: call Stop or Kill.
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

// Begin starts "serve" without waiting for anything.
func (p Program) Begin(dataDir string, args ...string) (*Server, error) {
	if err := DependOnSources(); err != nil {
		return nil, err
	}
	all := append([]string{"serve", "--listen", "127.0.0.1:0", "--external-listen", "", "--data-dir", dataDir}, args...)
	s := &Server{DataDir: dataDir, cmd: exec.Command(p.Path, all...), log: &rig.Output{}, exited: make(chan struct{})}
	s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = Environment(), s.log, s.log
	// Whatever ends the test ends the server, too.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		s.err = s.cmd.Wait()
		close(s.exited)
	}()
	return s, nil
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

// PID is the process's id.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Exited is closed when the process has ended.
func (s *Server) Exited() <-chan struct{} { return s.exited }

// Log is what the process has printed so far.
func (s *Server) Log() string { return s.log.String() }

// Kill ends the process as kill -9 does, and waits for its end.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill() // it fails only for a process that has ended
	<-s.exited
}

// Stop asks the process to end and waits until it has drained.
func (s *Server) Stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return errors.Join(err, s.err)
	}
	select {
	case <-s.exited:
	case <-time.After(patience):
		s.Kill()
		return fmt.Errorf("serve does not stop\n%s", s.log)
	}
	if s.err != nil {
		return fmt.Errorf("serve: %w\n%s", s.err, s.log)
	}
	return nil
}

// Password is admin's generated first password.
func (s *Server) Password() (string, error) {
	text, err := os.ReadFile(filepath.Join(s.DataDir, "bootstrap-password"))
	return strings.TrimSpace(string(text)), err
}

// Roots are the certificates that a client has to trust.
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

// BaseURL is what clients of Transport call. Its port is nobody's.
const BaseURL = "https://127.0.0.1:1"

// Transport connects to whatever address says at that moment: a server that
// was killed comes back on another port.
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
