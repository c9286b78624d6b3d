package server

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"github.com/keyserver-operator/keyserver-operator/httpapi"
	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password"
	"github.com/keyserver-operator/keyserver-operator/internal/engine"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/approval"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ca"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/rewrap"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/trust"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver/lifecycle"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/tracing"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/version"
	"github.com/keyserver-operator/keyserver-operator/internal/server/listener"
	"github.com/keyserver-operator/keyserver-operator/internal/server/tlscert"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/datadir"
)

// keyPasses is how often the process checks whether keys must be rotated or destroyed. Rotation and destruction are
// scheduled days in advance.
const keyPasses = time.Second

// Start opens all parts and returns when the API serves requests. It opens the listeners first, so that nothing on disk
// changes if a port is in use. ctx limits only the start. If Start fails, it closes the open parts in the same way as
// Shutdown.
func Start(ctx context.Context, cfg Config) (s *Server, err error) {
	cfg.fitFiles()
	cfg.fitStrangers()
	s = &Server{cfg: cfg, registry: prometheus.NewRegistry(), failed: make(chan error, 3)}
	defer func() {
		if err != nil {
			err = errors.Join(sqlstore.Explain(err, s.storeConfig()), s.Shutdown(context.WithoutCancel(ctx)))
		}
	}()
	if err := s.openListeners(); err != nil {
		return s, err
	}
	in, err := s.readInputs(ctx)
	if err != nil {
		return s, err
	}
	prepared, err := s.openStorage(ctx)
	if err != nil {
		return s, err
	}
	if err := s.openCertificates(ctx, in.certificate); err != nil {
		return s, err
	}
	if err := s.openAudit(ctx); err != nil {
		return s, err
	}
	s.watchHealth(ctx)
	if err := s.openTelemetry(); err != nil {
		return s, err
	}
	if err := s.openPeers(); err != nil {
		return s, err
	}
	s.openEngine(in.providers)
	s.startUpkeep(ctx)
	handler, err := s.newHandler(in)
	if err != nil {
		return s, err
	}
	s.auditSinks()
	s.archiveAudit()
	if err := s.serveAll(ctx, handler, prepared); err != nil {
		return s, err
	}
	cfg.Logger.InfoContext(ctx, "started", "version", version.String(), "system", s.system, "url", s.url, "database", s.database)
	return s, nil
}

// openListeners opens the listeners of the flags. It needs only the configuration. Shutdown closes the listeners.
func (s *Server) openListeners() (err error) {
	if s.listeners.api, err = s.listen("--listen", s.cfg.Listen); err != nil {
		return err
	}
	if s.listeners.external, err = s.listen("--external-listen", s.cfg.ExternalListen); err != nil {
		return err
	}
	s.listeners.metrics, err = s.listen("--metrics-listen", s.cfg.MetricsListen)
	return err
}

// inputs contains the files and services that flags name. They are read before the process changes any file.
type inputs struct {
	pages       httpapi.Pages  // of the web console; nil if it is off
	certificate *tlscert.Files // of --tls-cert; nil without the flag
	admission   func() error   // returns an error if this build may not serve; nil if every build may serve
	providers   session.Providers
}

// readInputs waits for the data directory and reads the inputs, so that a wrong path changes nothing on disk. The
// listeners must be open: connections wait there until the API serves them. Shutdown stops the watch of the release
// manifest.
func (s *Server) readInputs(ctx context.Context) (in inputs, err error) {
	if s.cfg.DataDirWait > 0 && s.cfg.DatabaseURL == "" {
		if err := datadir.Await(ctx, s.cfg.DataDir, s.cfg.DataDirWait, s.cfg.Logger); err != nil {
			return in, err
		}
	}
	if in.pages, err = s.pages(); err != nil {
		return in, err
	}
	if in.certificate, err = s.givenFiles(); err != nil {
		return in, err
	}
	if in.admission, err = s.admission(); err != nil {
		return in, err
	}
	in.providers, err = s.providers()
	return in, err
}

// openStorage opens the key-encryption key, the database and the data keys. For a new key server, it creates the first
// rows. It runs after readInputs, which waits for the data directory. Shutdown closes the previous key-encryption key,
// stops the replication, and closes the database and the key-encryption key.
func (s *Server) openStorage(ctx context.Context) (prepared bootstrap.Prepared, err error) {
	provider, err := s.openProvider(ctx)
	if err != nil {
		return prepared, err
	}
	if s.store, err = s.openStore(ctx); err != nil {
		return prepared, err
	}
	if s.clock, err = s.watchClock(ctx); err != nil {
		return prepared, err
	}
	s.alarm = newTamperAlarm(s.cfg)
	s.store.OnTampered(s.alarm.raise)
	s.replication = s.openReplication()
	if s.ring, err = s.openKeyring(ctx, provider); err != nil {
		return prepared, err
	}
	if prepared, err = s.prepare(ctx); err != nil {
		return prepared, err
	}
	s.system = prepared.System
	return prepared, nil
}

// openCertificates creates the manager of the key server's CAs and the certificates of the listeners. It needs the
// database, the data keys and the system id. The argument files is for --tls-cert; it may be nil. Shutdown stops the
// loop that reads the files again.
func (s *Server) openCertificates(ctx context.Context, files *tlscert.Files) (err error) {
	s.manager = ca.New(ca.Config{
		Store: s.store, Keyring: s.ring, System: s.system, ServerName: s.cfg.ServerName, Clock: s.cfg.Clock, Random: rand.Reader,
	})
	if s.leaf, err = s.openLeaves(ctx, files); err != nil {
		return err
	}
	s.leaf.observe(s.registry)
	return nil
}

// openAudit starts the tree of the audit log and its writer. Then it starts the alarms and the witness, which write
// audit rows. It needs the database, the data keys and the system id. Shutdown stops the alarms, writes the audit row
// of the shutdown and closes the writer. Last, it stops the tree, which then signs the last rows.
func (s *Server) openAudit(ctx context.Context) error {
	recent, err := s.openTree(ctx)
	if err != nil {
		return err
	}
	meter := newAuditMetrics()
	s.rows, err = audit.NewWriter(ctx, s.store, audit.Options{Clock: s.cfg.Clock, Logger: s.cfg.Logger, Written: recent.Written, Measured: meter.measured})
	if err != nil {
		return err
	}
	s.onClose(func(context.Context) error { return s.rows.Close() })
	s.onClose(s.recordStop)
	s.alarm.system = s.system
	s.alarm.rows.Store(s.rows)
	s.background(s.alarm.run)

	conflicts := newConflictAlarm(s.cfg, s.rows, s.tree.Interval)
	s.background(conflicts.run)
	if s.cosigner, err = s.openWitness(ctx, conflicts); err != nil {
		return err
	}
	s.auditKey, s.witnessKey = s.tree.Key(), s.cosigner.Signer.Key
	meter.observe(s.registry, s.rows, s.tree)
	s.alarm.observe(s.registry)
	observeAuditTree(s.registry, s.tree)
	s.registry.MustRegister(conflicts.found)
	return nil
}

// watchHealth starts the checks for GET /api/ready. It needs the database, the data keys, the certificates and the
// audit log. Shutdown stops the checks.
func (s *Server) watchHealth(ctx context.Context) {
	s.health = &health{cfg: s.cfg, store: s.store, rows: s.rows, key: watchKey(s.ring, s.cfg), own: s.leaf.issued.Trouble, failing: map[string]bool{}}
	s.health.look(ctx)
	s.background(s.health.run)
	s.background(s.health.key.run)
	s.health.observe(s.registry)
}

// openTelemetry registers the metrics of the process and starts tracing. It needs only the configuration. Shutdown
// sends the spans that are still queued.
func (s *Server) openTelemetry() error {
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), BuildInfo())
	s.cfg.observe(s.registry)
	tracer, flush, err := tracing.Start(s.cfg.Tracing, "keyserver", version.String(), s.cfg.Logger)
	if err != nil {
		return err
	}
	s.onClose(func(ctx context.Context) error { flush(ctx); return nil })
	s.observer = peer.Observer{Metrics: peer.NewMetrics(s.registry), Tracer: tracer}
	return nil
}

// openPeers starts the client for calls to peers and the feed of checkpoints to witnesses. Then it starts the renewal
// of the server certificate, which the client presents. It needs the certificates, the audit log and telemetry.
// Shutdown stops the loops and closes the client.
func (s *Server) openPeers() (err error) {
	s.peerRegistry = trust.NewPeerRegistry(s.store, s.cfg.Clock)
	s.peerRegistry.RecordTo(s.rows, s.system)
	s.peers = s.openPeerClient()
	if s.feed, err = s.openFeed(); err != nil {
		return err
	}
	s.background(s.leaf.issued.Follow(s.store))
	s.background(authorities{s.manager, s.rows, s.system, s.cfg.Logger}.run)
	return nil
}

// openEngine creates the key server and its sessions. It starts the loops that index the audit log, and that rotate and
// destroy keys. It needs all parts that were opened before. Shutdown closes the sessions and stops the loops.
func (s *Server) openEngine(providers session.Providers) {
	cfg := s.cfg
	s.backups = s.newBackupMaker()
	s.wrapping = rewrap.New(rewrap.Config{Store: s.store, Keyring: s.ring, System: s.system, Logger: cfg.Logger})
	hashes := password.NewGate(cfg.MaxLogins)
	s.engine = engine.New(engine.Config{
		Store: s.store, Keyring: s.ring, Auditor: s.rows, System: s.system, Self: s.self(), Deployment: keyserver.Deployment(cfg.Deployment),
		Clock: cfg.Clock, Random: rand.Reader, Logger: cfg.Logger, Peers: s.peers, BreakGlass: cfg.BreakGlass, LimitRefusals: true,
		Parts: engine.Parts{
			DataKeys: s.wrapping, AuditTree: s.tree, Witnessing: s.cosigner, CAManager: s.manager, Backups: s.backups,
			Build: cfg.Version, Settings: settings(cfg, s.system, s.listeners), PasswordCost: cfg.PasswordCost, Hashes: hashes,
		},
	})
	s.background(s.noteBlocks(s.store.FillAuditBlock))
	s.background(lifecycle.Loop{Keys: s.engine, Every: keyPasses, Logger: cfg.Logger}.Run)
	s.sessions = session.NewManager(session.Config{
		Providers: providers, Store: s.store, Audit: s.rows, System: s.system, Clock: cfg.Clock, Random: rand.Reader, Logger: cfg.Logger,
		Registerer: s.registry, Authorizer: s.engine, Idle: cfg.SessionIdle, Lifetime: cfg.SessionLifetime, ScopedLifetime: cfg.ScopedLifetime, RequireProof: session.Demand(cfg.RequireProof), PasswordCost: cfg.PasswordCost, Hashes: hashes, Limits: cfg.Limits.Limits,
	})
	s.onClose(func(context.Context) error { s.sessions.Close(); return nil })
}

// startUpkeep starts backups, replication, the watch of the clock and the count of objects. It needs the engine.
// Shutdown stops all of them. It stops the replication last, just before it closes the database.
func (s *Server) startUpkeep(ctx context.Context) {
	s.health.backups = s.scheduleBackups()
	s.health.replica = s.replication.start()
	observeDatabase(s.registry, s.store)
	s.clock.begin(ctx, s)
	s.warnOfBreakGlass(ctx)
	s.observeKey()
	held := &inventory{store: s.store, wrapped: s.wrapping, clock: s.cfg.Clock, idle: s.cfg.SessionIdle, logger: s.cfg.Logger}
	s.registry.MustRegister(held)
	s.background(held.run)
}

// newHandler creates the approval service and the handler of the API. It needs the engine and the inputs. Shutdown has
// nothing to close for it.
func (s *Server) newHandler(in inputs) (*httpapi.API, error) {
	cfg := s.cfg
	approvals := approval.New(approval.Config{
		Store: s.store, Gate: s.engine, Deployment: keyserver.Deployment(cfg.Deployment), Clock: cfg.Clock, Random: rand.Reader,
	})
	observeApprovals(s.registry, approvals)
	handler, err := httpapi.New(httpapi.Config{
		Operations: verified.New(s.engine), Sessions: s.sessions, Approvals: approvals, Logger: cfg.Logger, Clock: cfg.Clock, Registerer: s.registry,
		Site: s.site(), Proxies: cfg.proxies, Admission: in.admission, Parts: func() []keyserver.Readiness { return append(s.leaf.readiness(), s.health.parts()...) },
		Warnings: s.health.warnings, Restrain: s.engine.Restrained, Protect: protect, Delay: delay,
		Tracer:  s.observer.Tracer,
		Witness: s.cosigner, Pages: in.pages,
		MaxInFlight: cfg.MaxRequests, MaxWaiting: cfg.MaxWaiting, MaxStreams: cfg.MaxStreams,
		MaxConnections: cfg.MaxConnections, MaxStrangers: cfg.MaxStrangers, MaxStrangersPerAddress: cfg.MaxStrangersPerAddress,
		MaxSpoolBytes: cfg.MaxSpoolBytes, MaxSpoolBytesPerSession: cfg.MaxSpoolBytesPerSession,
	})
	if err != nil {
		return nil, err
	}
	s.registry.MustRegister(readyParts(handler.Readiness))
	return handler, nil
}

// serveAll serves metrics and peers, then writes the audit row of the start, and then serves the API. It needs the
// handler and all other parts. Shutdown drains the handler, stops the API, stops background work on data keys, and
// stops the listeners for peers and metrics.
func (s *Server) serveAll(ctx context.Context, handler *httpapi.API, prepared bootstrap.Prepared) error {
	accepts := listener.NewAccepts("keyserver_accept_failures_total", s.cfg.Logger)
	s.registry.MustRegister(accepts)
	if s.listeners.metrics != nil {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}))
		s.serve(accepts.Probes(s.listeners.metrics), &http.Server{Handler: mux})
	}
	if s.listeners.external != nil {
		s.servePeers(netutil.LimitListener(accepts.Watch(s.listeners.external), s.cfg.MaxConnections))
	}
	if err := s.recordStart(ctx, prepared); err != nil {
		return err
	}
	s.background(s.wrapping.Run)
	if err := s.serveAPI(s.bound(accepts.Watch(s.listeners.api)), handler); err != nil {
		return err
	}
	s.onClose(func(context.Context) error { handler.Drain(); return nil })
	return nil
}
