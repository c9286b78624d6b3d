package server

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/witness"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/engine"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ca"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/rewrap"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/trust"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server/tlscert"
	"github.com/keyserver-operator/keyserver-operator/internal/store/backup"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Limits of the HTTP servers. The limits and deadlines of request bodies are in package httpapi, by route.
const (
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
)

// Server is a running serve process.
type Server struct {
	cfg      Config
	system   keyserver.SystemID
	address  string
	url      string
	database string
	started  bool
	password string // path of the password file that this start generated; empty: none
	// officerPassword is the path of the officer's generated password file; empty: none.
	officerPassword string

	auditKey   keyserver.AuditKey
	witnessKey string

	// The following parts are used by more than one function of Start. They are in the order in which they are opened.
	registry     *prometheus.Registry
	listeners    listeners
	store        *sqlstore.Store
	clock        *clockWatch // nil if the clock is not monotonic
	alarm        *tamperAlarm
	replication  *replicating
	ring         *keyring.Keyring
	manager      *ca.Manager
	leaf         leaves
	tree         *tree.Tree
	rows         *audit.Writer
	cosigner     *witness.Witness
	health       *health
	observer     peer.Observer
	peerRegistry *trust.PeerRegistry
	peers        *peer.Client
	feed         *witness.Feed
	backups      *backup.Maker
	wrapping     *rewrap.Worker
	engine       *engine.Engine
	sessions     *session.Manager

	closers []func(context.Context) error // in the order of opening
	failed  chan error
}

// Address returns the address of the API listener, with the port.
func (s *Server) Address() string { return s.address }

// URL returns --external-url if it is set, and otherwise the URL of the API for clients on this machine.
func (s *Server) URL() string { return s.url }

// SystemID returns the key server's system id.
func (s *Server) SystemID() keyserver.SystemID { return s.system }

// AuditKey returns the key that verifies the checkpoints of the audit tree.
func (s *Server) AuditKey() keyserver.AuditKey { return s.auditKey }

// WitnessKey returns the key that verifies the cosignatures of this key server.
func (s *Server) WitnessKey() string { return s.witnessKey }

// Database returns a short description of the database for messages.
func (s *Server) Database() string { return s.database }

// CAFile returns the path of the PEM file with the internal CA's certificates.
func (s *Server) CAFile() string { return filepath.Join(s.cfg.DataDir, "ca.crt") }

// PasswordFile returns the path of admin's first password if this start generated it, and "" otherwise.
func (s *Server) PasswordFile() string { return s.password }

// OfficerPasswordFile returns the path of the officer's first password if this start generated it, and "" otherwise.
func (s *Server) OfficerPasswordFile() string { return s.officerPassword }

func (s *Server) listen(flag, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s: address %s is in use by another process; stop it or choose another address", flag, address)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: cannot listen on %s: %w", flag, address, err)
	}
	s.onClose(func(context.Context) error {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	return l, nil
}

// givenFiles reads the files of flags before the start creates any file, so that a wrong path changes nothing on disk.
// It returns the certificate of --tls-cert, or nil if the flag is not set.
func (s *Server) givenFiles() (*tlscert.Files, error) {
	// Only the first start needs the password files, and an administrator may delete them later. For PostgreSQL, it is
	// not known yet whether this is the first start.
	admin, officer := s.cfg.firstPasswords()
	if s.cfg.Deployment != string(keyserver.Split) {
		officer.given = ""
	}
	for _, first := range []firstPassword{admin, officer} {
		if first.given == "" || s.cfg.DatabaseURL != "" {
			continue
		}
		if _, err := os.Lstat(filepath.Join(s.cfg.DataDir, sqlite.DatabaseFile)); errors.Is(err, os.ErrNotExist) {
			if _, err := first.read(); err != nil {
				return nil, err
			}
		}
	}
	if err := s.cfg.checkSinks(); err != nil {
		return nil, err
	}
	if s.cfg.TLSCert == "" {
		return nil, nil
	}
	return tlscert.OpenFiles(s.cfg.TLSCert, s.cfg.TLSKey, s.cfg.Clock, s.cfg.Logger)
}

func (s *Server) storeConfig() sqlstore.Config {
	c := sqlstore.Config{Dir: s.cfg.DataDir, Clock: s.cfg.Clock, Logger: s.cfg.Logger, Shipped: s.cfg.ReplicateTo != ""}
	if s.cfg.DatabaseURL != "" {
		c.Dir, c.URL, c.MaxConnections = "", s.cfg.DatabaseURL, s.cfg.DatabaseMaxConnections
	}
	return c
}

func (s *Server) openStore(ctx context.Context) (*sqlstore.Store, error) {
	s.database = "embedded database in " + s.cfg.DataDir
	if s.cfg.DatabaseURL != "" {
		s.database = "PostgreSQL"
	}
	store, err := sqlstore.Open(ctx, s.storeConfig())
	if err != nil {
		return nil, err
	}
	s.onClose(func(context.Context) error { return store.Close() })
	return store, nil
}

// makeDataDir creates the directory with access for this user only. It does not change the mode of an existing
// directory.
func makeDataDir(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return fmt.Errorf("--data-dir %s is not a directory; choose another path", dir)
	case err == nil:
		return nil
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("--data-dir %s cannot be read: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("--data-dir %s cannot be created: %w", dir, err)
	}
	return nil
}

func (s *Server) prepare(ctx context.Context) (bootstrap.Prepared, error) {
	admin, officer := s.cfg.firstPasswords()
	state := s.bootstrap()
	state.AdminPassword, state.OfficerPassword, state.ServiceAccount = admin.read, officer.read, s.cfg.serviceAccount()
	if state.ServiceAccount != nil && s.cfg.BootstrapPasswordFile == "" {
		state.AdminPassword = nil // no user needs this password, and an attacker could use it
	}
	prepared, err := bootstrap.Run(ctx, state)
	if err != nil {
		return prepared, err
	}
	if prepared.First {
		s.password, s.officerPassword = admin.generated, officer.generated
	}
	if err := s.warn(ctx, state.Deployment); err != nil {
		return prepared, err
	}
	return prepared, nil
}

func (s *Server) bootstrap() bootstrap.Config {
	return bootstrap.Config{
		Store: s.store, Keyring: s.ring, System: keyserver.SystemID(s.cfg.SystemID),
		Deployment: keyserver.Deployment(s.cfg.Deployment), ServerName: s.cfg.ServerName, Hosts: s.cfg.hosts(),
		PasswordCost: s.cfg.PasswordCost, Clock: s.cfg.Clock, Random: rand.Reader,
	}
}

// FirstPasswordFile returns the path of admin's first password: the file of the flag or the generated file.
func (s *Server) FirstPasswordFile() string {
	if s.cfg.BootstrapPasswordFile != "" {
		return s.cfg.BootstrapPasswordFile
	}
	return filepath.Join(s.cfg.DataDir, passwordFile)
}

// FirstPassword reads admin's first password. It fails if the file was deleted, as the documentation recommends.
func (s *Server) FirstPassword() (string, error) {
	return readPassword("the first password", s.FirstPasswordFile())
}

// Roots returns the CA certificates that a client of this server has to trust.
func (s *Server) Roots() (*x509.CertPool, error) {
	content, err := os.ReadFile(s.CAFile())
	if err != nil {
		return nil, err
	}
	pool, err := certtext.Pool(content)
	if err != nil {
		return nil, fmt.Errorf("%s %w", s.CAFile(), err)
	}
	return pool, nil
}
