package kmsplugin

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	kms "k8s.io/kms/apis/v2"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/brief"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/unixsocket"
	"github.com/keyserver-operator/keyserver-operator/internal/server/listener"
)

const (
	// maxConnections is the maximum number of connections to the socket. kube-apiserver opens one for each configured
	// provider.
	maxConnections = 64
	// ownFiles is the number of files that the plugin needs in addition to these connections.
	ownFiles   = 48
	maxStreams = 64
	maxMessage = 64 << 10
	maxHeader  = 16 << 10
	// drainTime limits the wait for running calls at shutdown.
	drainTime = 10 * time.Second
	// handshake limits the time to set up a connection.
	handshake = 10 * time.Second
	// lookTime limits a check without a caller's deadline.
	lookTime = 3 * time.Second
	// goodbye limits the logout.
	goodbye = 2 * time.Second
)

// Config is the configuration of the plugin.
type Config struct {
	Server      string // URL of the key server's API
	ExternalURL string // the key server's own URL; empty means Server
	CAFile      string // PEM file with the CA certificates of the API; empty means the certificates of the system
	TokenFile   string // file of the service account token for the login
	Lineage     schema.HiddenLink
	Socket      string // path of the socket
	Metrics     string // address for metrics and health; empty disables the listener
	UserAgent   string
	Logger      *slog.Logger
	Clock       func() time.Time
}

// Run serves until ctx ends, and then waits for running calls. It calls ready when it accepts calls, even if the key
// server does not respond yet.
func Run(ctx context.Context, c Config, ready func()) error {
	// The session is bound to a key that only this process has.
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("create the key of the session: %w", err)
	}
	link, err := newConnection(c, key)
	if err != nil {
		return fmt.Errorf("--server: %w", err)
	}
	var observed net.Listener
	if c.Metrics != "" {
		if observed, err = (&net.ListenConfig{}).Listen(ctx, "tcp", c.Metrics); err != nil {
			return fmt.Errorf("--metrics-listen: %w", err)
		}
	}
	socket, err := unixsocket.Listen(ctx, c.Socket, 0o600)
	if err != nil {
		err = fmt.Errorf("--listen: %w", err)
		if observed != nil {
			err = errors.Join(err, observed.Close())
		}
		return err
	}
	p := &plugin{
		keys: link.client, lineage: c.Lineage, clock: c.Clock, logger: c.Logger, metrics: newMetrics(c.Logger), places: make(chan struct{}, maxUnderWay),
	}
	ready()
	err = p.serve(ctx, socket, observed)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer cancel()
	link.close(last)
	return err
}

// serve serves calls until ctx ends or a listener fails.
func (p *plugin) serve(ctx context.Context, socket, observed net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := grpc.NewServer(
		grpc.UnaryInterceptor(p.each), grpc.ConnectionTimeout(handshake),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxHeaderListSize(maxHeader), grpc.MaxConcurrentStreams(maxStreams))
	kms.RegisterKeyManagementServiceServer(server, p)
	ended := make(chan error, 2)
	running := 1
	places := listener.Fit(p.logger, "--listen", maxConnections, ownFiles)
	go func() { ended <- server.Serve(netutil.LimitListener(p.metrics.accepts.Watch(socket), places)) }()
	health := p.observe()
	if observed != nil {
		running++
		go func() {
			err := health.Serve(p.metrics.accepts.Probes(observed))
			if errors.Is(err, http.ErrServerClosed) {
				err = nil
			}
			ended <- err
		}()
	}
	looked := make(chan struct{})
	go func() { // the first check logs errors at the start
		defer close(looked)
		p.firstLook(ctx)
	}()
	var failure error
	select {
	case <-ctx.Done():
	case failure = <-ended:
		running--
		if failure == nil {
			failure = errors.New("a listener stopped unexpectedly")
		}
	}
	cancel()
	<-looked
	drain(server)
	failure = errors.Join(failure, health.Close())
	for range running {
		failure = errors.Join(failure, <-ended)
	}
	return failure
}

// drain waits for running calls, at most drainTime.
func drain(server *grpc.Server) {
	late := time.AfterFunc(drainTime, server.Stop)
	defer late.Stop()
	server.GracefulStop()
}

func (p *plugin) firstLook(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	switch s, err := p.look(ctx); {
	case err == nil:
		p.logger.Info("the key lineage encrypts", "lineage", p.lineage.String(), "key", s.key.String(), "generation", s.generation)
	case !errors.Is(err, context.Canceled):
		p.logger.Error("the key lineage cannot be used now; the plugin tries again at each call", "lineage", p.lineage.String(), "error", brief.Clip(err.Error(), maxSentence))
	}
}

// observe returns the server of metrics and health. /healthz shows that the process runs. /readyz shows that the
// lineage can encrypt.
func (p *plugin) observe() *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.metrics.registry(), promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, well) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), lookTime)
		defer cancel()
		if _, err := p.look(ctx); err != nil {
			http.Error(w, brief.Clip(err.Error(), maxSentence), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, well)
	})
	return &http.Server{
		Handler: mux, ReadHeaderTimeout: handshake, ReadTimeout: handshake, IdleTimeout: time.Minute, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(p.logger.Handler(), slog.LevelDebug),
	}
}
