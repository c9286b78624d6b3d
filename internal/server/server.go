package server

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"github.com/keyserver-operator/keyserver-operator/httpapi"
	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki/certtext"
	"github.com/keyserver-operator/keyserver-operator/internal/engine"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/approval"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ca"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/rewrap"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver/lifecycle"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/tracing"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/version"
	"github.com/keyserver-operator/keyserver-operator/internal/server/listener"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/datadir"
)

// Bounds of the HTTP servers. Bodies have their own bounds and deadlines per
// route, in package httpapi.
const (
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
	// keyPasses is how often keys are looked at that are due for rotation or
	// destruction, which is a matter of days.
	keyPasses = time.Second
)

// Server is a running serve process.
type Server struct {
	cfg      Config
	system   keyserver.SystemID
	address  string
	url      string
	database string
	started  bool
	password string // path of the generated password, empty if none was generated now
	// officerPassword is the same for the officer.
	officerPassword string

	auditKey   keyserver.AuditKey
	witnessKey string

	closers []func(context.Context) error // in the order in which they were opened
	failed  chan error
}

// Start opens everything and returns once requests are answered. The listeners
// are opened first, so that a port in use changes nothing on disk. ctx bounds
// the start only.
func Start(ctx context.Context, cfg Config) (s *Server, err error) {
	cfg.fitFiles()
	cfg.fitStrangers()
	s = &Server{cfg: cfg, failed: make(chan error, 3)}
	defer func() {
		if err != nil {
			err = errors.Join(sqlstore.Explain(err, s.storeConfig()), s.Shutdown(context.WithoutCancel(ctx)))
		}
	}()
	api, err := s.listen("--listen", cfg.Listen)
	if err != nil {
		return s, err
	}
	external, err := s.listen("--external-listen", cfg.ExternalListen)
	if err != nil {
		return s, err
	}
	metrics, err := s.listen("--metrics-listen", cfg.MetricsListen)
	if err != nil {
		return s, err
	}
	// Requests that come meanwhile are not refused: the listeners hold their connections.
	if cfg.DataDirWait > 0 && cfg.DatabaseURL == "" {
		if err := datadir.Await(ctx, cfg.DataDir, cfg.DataDirWait, cfg.Logger); err != nil {
			return s, err
		}
	}
	pages, err := s.pages()
	if err != nil {
		return s, err
	}
	given, err := s.givenFiles()
	if err != nil {
		return s, err
	}
	admission, err := s.admission()
	if err != nil {
		return s, err
	}
	providers, err := s.providers()
	if err != nil {
		return s, err
	}
	keeper, err := s.openKeeper(ctx)
	if err != nil {
		return s, err
	}
	store, err := s.openStore(ctx)
	if err != nil {
		return s, err
	}
	clock, err := s.watchClock(ctx, store)
	if err != nil {
		return s, err
	}
	alarm := newTamperAlarm(cfg)
	store.OnTampered(alarm.raise)
	replicator := s.replicator(store)
	ring, err := s.openKeyring(ctx, keeper, store)
	if err != nil {
		return s, err
	}
	prepared, err := s.prepare(ctx, store, ring)
	if err != nil {
		return s, err
	}
	s.system = prepared.System
	manager := ca.New(ca.Config{
		Store: store, Keyring: ring, System: s.system, ServerName: cfg.ServerName, Clock: cfg.Clock, Random: rand.Reader,
	})
	leaf, err := s.leaf(ctx, manager, given, s.bootstrap(store, ring))
	if err != nil {
		return s, err
	}
	auditTree, recent, err := s.auditTree(ctx, store, ring, alarm)
	if err != nil {
		return s, err
	}
	trail := newTrailMeter()
	rows, err := audit.NewWriter(ctx, store, audit.Options{Clock: cfg.Clock, Logger: cfg.Logger, Written: recent.Written, Measured: trail.measured})
	if err != nil {
		return s, err
	}
	s.onClose(func(context.Context) error { return rows.Close() })
	s.onClose(func(ctx context.Context) error { return s.recordStop(ctx, rows) })
	alarm.system = s.system
	alarm.rows.Store(rows)
	s.background(alarm.run)

	conflicts := newConflictAlarm(cfg, rows, auditTree.Interval)
	s.background(conflicts.run)
	cosigner, err := s.witness(ctx, store, ring, auditTree.Key(), conflicts)
	if err != nil {
		return s, err
	}
	s.auditKey, s.witnessKey = auditTree.Key(), cosigner.Signer.Key

	care := &health{cfg: cfg, store: store, rows: rows, key: watchKey(ring, cfg), own: leaf.issued.trouble, failing: map[string]bool{}}
	care.look(ctx)
	s.background(care.run)
	s.background(care.key.run)

	registry := prometheus.NewRegistry()
	accepts := listener.NewAccepts("keyserver_accept_failures_total", cfg.Logger)
	registry.MustRegister(accepts, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), BuildInfo())
	cfg.observe(registry)
	trail.observe(registry, rows, auditTree)
	tracer, flush, err := tracing.Start(cfg.Tracing, "keyserver", version.String(), cfg.Logger)
	if err != nil {
		return s, err
	}
	s.onClose(func(ctx context.Context) error { flush(ctx); return nil })
	observer := peer.Observer{Metrics: peer.NewMetrics(registry), Tracer: tracer}

	peerRegistry := engine.NewPeerRegistry(store, cfg.Clock)
	peerRegistry.RecordTo(rows, s.system)
	peers := s.askPeers(store, peerRegistry, leaf, observer)
	feed, err := s.feed(store, auditTree, cosigner, peers, alarm)
	if err != nil {
		return s, err
	}
	s.background(leaf.issued.follow(store))
	s.background(authorities{manager, rows, s.system, cfg.Logger}.run)
	backups := s.backups(store, ring)
	wrapping := rewrap.New(rewrap.Config{Store: store, Keyring: ring, System: prepared.System, Logger: cfg.Logger})
	hashes := password.NewGate(cfg.MaxLogins)
	ks := engine.New(engine.Config{
		Store: store, Keyring: ring, DataKeys: wrapping, Auditor: rows, AuditTree: auditTree, Witnessing: cosigner, System: prepared.System, Deployment: keyserver.Deployment(cfg.Deployment),
		CAManager: manager, Self: s.self(leaf, external), Backups: backups,
		Build: cfg.Version, Clock: cfg.Clock, Random: rand.Reader, Logger: cfg.Logger,
		Settings: settings(cfg, prepared.System, listeners{api, external, metrics}), Peers: peers, BreakGlass: cfg.BreakGlass, PasswordCost: cfg.PasswordCost, Hashes: hashes,
		Refusals: engine.NewRefusals(cfg.Clock),
	})
	s.background(s.noteBlocks(store.FillAuditBlock))
	s.background(lifecycle.Loop{Keys: ks, Every: keyPasses, Logger: cfg.Logger}.Run)
	sessions := session.NewManager(session.Config{
		Providers: providers, Store: store, Audit: rows, System: prepared.System, Clock: cfg.Clock, Random: rand.Reader, Logger: cfg.Logger,
		Registerer: registry, Authorizer: ks, Idle: cfg.SessionIdle, Lifetime: cfg.SessionLifetime, ScopedLifetime: cfg.ScopedLifetime, RequireProof: session.Demand(cfg.RequireProof), PasswordCost: cfg.PasswordCost, Hashes: hashes, Limits: cfg.Limits.Limits,
	})
	s.onClose(func(context.Context) error { sessions.Close(); return nil })

	approvals := approval.New(approval.Config{
		Store: store, Gate: ks, Deployment: keyserver.Deployment(cfg.Deployment), Clock: cfg.Clock, Random: rand.Reader,
	})

	leaf.observe(registry)
	care.observe(registry)
	care.backups = s.scheduleBackups(backups, rows, registry)
	care.replica = replicator.start(backups, rows, registry)
	observeDatabase(registry, store)
	clock.begin(ctx, s, rows, registry)
	s.warnOfBreakGlass(ctx, registry)
	s.observeKey(registry)
	observeApprovals(registry, approvals)
	held := &inventory{store: store, wrapped: wrapping, clock: cfg.Clock, idle: cfg.SessionIdle, logger: cfg.Logger}
	registry.MustRegister(held)
	s.background(held.run)
	handler, err := httpapi.New(httpapi.Config{
		Operations: verified.New(ks), Sessions: sessions, Approvals: approvals, Logger: cfg.Logger, Clock: cfg.Clock, Registerer: registry,
		Site: s.site(api, leaf.api), Proxies: cfg.proxies, Admission: admission, Parts: func() []keyserver.Readiness { return append(leaf.readiness(), care.parts()...) },
		Warnings: care.warnings, Restrain: ks.Restrained, Protect: protect, Delay: delay,
		Tracer:  tracer,
		Witness: cosigner, Pages: pages,
		MaxInFlight: cfg.MaxRequests, MaxWaiting: cfg.MaxWaiting, MaxStreams: cfg.MaxStreams,
		MaxConnections: cfg.MaxConnections, MaxStrangers: cfg.MaxStrangers, MaxStrangersPerAddress: cfg.MaxStrangersPerAddress,
		MaxSpoolBytes: cfg.MaxSpoolBytes, MaxSpoolBytesPerSession: cfg.MaxSpoolBytesPerSession,
	})
	if err != nil {
		return s, err
	}
	registry.MustRegister(readyParts(handler.Readiness))
	alarm.observe(registry)
	observeAuditTree(registry, auditTree)
	s.auditSinks(store, auditTree, registry)
	s.archiveAudit(registry, store, auditTree, feed, rows, alarm)
	registry.MustRegister(conflicts.found)
	if metrics != nil {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
		s.serve(accepts.Probes(metrics), &http.Server{Handler: mux})
	}
	if external != nil {
		s.servePeers(netutil.LimitListener(accepts.Watch(external), cfg.MaxConnections), store, peerRegistry, ks, cosigner, leaf, observer)
	}
	if err := s.recordStart(ctx, rows, prepared); err != nil {
		return s, err
	}
	s.background(wrapping.Run)
	if err := s.serveAPI(s.bound(accepts.Watch(api), registry), handler, leaf.api, newClientGate(store, cfg.Clock, cfg.Logger, registry)); err != nil {
		return s, err
	}
	s.onClose(func(context.Context) error { handler.Drain(); return nil })
	cfg.Logger.InfoContext(ctx, "started", "version", version.String(), "system", s.system, "url", s.url, "database", s.database)
	return s, nil
}

// Address is the address that the API listens on, the port included.
func (s *Server) Address() string { return s.address }

// URL is where the API is reached from this machine, or --external-url.
func (s *Server) URL() string { return s.url }

// SystemID is the key server's system id.
func (s *Server) SystemID() keyserver.SystemID { return s.system }

// AuditKey is what verifies the checkpoints of the audit tree.
func (s *Server) AuditKey() keyserver.AuditKey { return s.auditKey }

// WitnessKey is what verifies the cosignatures of this key server.
func (s *Server) WitnessKey() string { return s.witnessKey }

// Database says in a few words where the state is.
func (s *Server) Database() string { return s.database }

// CAFile is the PEM file of the internal CA.
func (s *Server) CAFile() string { return filepath.Join(s.cfg.DataDir, "ca.crt") }

// PasswordFile is where this start wrote admin's first password, empty if it
// wrote none.
func (s *Server) PasswordFile() string { return s.password }

// OfficerPasswordFile is where this start wrote the officer's first password,
// empty if it wrote none.
func (s *Server) OfficerPasswordFile() string { return s.officerPassword }

// listen opens a listener, or returns nil for an empty address.
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

// givenFiles reads the files that flags name before anything is made, so that
// a wrong path changes nothing on disk. It answers the certificate of
// --tls-cert, nil where the flag is not given.
func (s *Server) givenFiles() (*certificateFiles, error) {
	// Only the first start needs the password; later ones find a database, and
	// the file gone, as it should be. What PostgreSQL holds is not known yet.
	admin, officer := s.cfg.firstPasswords()
	if s.cfg.Deployment != string(keyserver.Split) {
		officer.given = ""
	}
	for _, first := range []firstPassword{admin, officer} {
		if first.given == "" || s.cfg.DatabaseURL != "" {
			continue
		}
		if _, err := os.Lstat(filepath.Join(s.cfg.DataDir, sqlstore.DatabaseFile)); errors.Is(err, os.ErrNotExist) {
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
	return newCertificateFiles(s.cfg)
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

// makeDataDir makes the directory for this user alone. One that exists keeps
// its mode.
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
		return fmt.Errorf("--data-dir %s cannot be made: %w", dir, err)
	}
	return nil
}

func (s *Server) prepare(ctx context.Context, store *sqlstore.Store, ring *keyring.Keyring) (bootstrap.Prepared, error) {
	admin, officer := s.cfg.firstPasswords()
	state := s.bootstrap(store, ring)
	state.AdminPassword, state.OfficerPassword, state.ServiceAccount = admin.read, officer.read, s.cfg.serviceAccount()
	if state.ServiceAccount != nil && s.cfg.BootstrapPasswordFile == "" {
		state.AdminPassword = nil // a password that nobody needs is one that somebody finds
	}
	prepared, err := bootstrap.Run(ctx, state)
	if err != nil {
		return prepared, err
	}
	if prepared.First {
		s.password, s.officerPassword = admin.generated, officer.generated
	}
	if err := s.warn(ctx, store, state.Deployment); err != nil {
		return prepared, err
	}
	return prepared, nil
}

func (s *Server) bootstrap(store *sqlstore.Store, ring *keyring.Keyring) bootstrap.Config {
	return bootstrap.Config{
		Store: store, Keyring: ring, System: keyserver.SystemID(s.cfg.SystemID),
		Deployment: keyserver.Deployment(s.cfg.Deployment), ServerName: s.cfg.ServerName, Hosts: s.cfg.hosts(),
		PasswordCost: s.cfg.PasswordCost, Clock: s.cfg.Clock, Random: rand.Reader,
	}
}

// FirstPasswordFile is where admin's first password is, given or generated.
func (s *Server) FirstPasswordFile() string {
	if s.cfg.BootstrapPasswordFile != "" {
		return s.cfg.BootstrapPasswordFile
	}
	return filepath.Join(s.cfg.DataDir, passwordFile)
}

// FirstPassword reads admin's first password. It fails once somebody has
// removed the file, as they should.
func (s *Server) FirstPassword() (string, error) {
	return readPassword("the first password", s.FirstPasswordFile())
}

// Roots are the certificates that a client of this server has to trust.
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
