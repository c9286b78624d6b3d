// Package agent forwards requests of the workload in the same Pod to a key server. The workload calls /api on a unix
// socket or loopback port without a credential. The agent logs in with the Pod's projected token. It binds its session
// to a key in memory, and forwards only allowed requests.
package agent

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/server/listener"
)

// Defaults of Config.
const (
	DefaultListen      = "unix:///run/keyserver/agent.sock"
	DefaultSocketMode  = "0660"
	DefaultMaxRequests = 64
)

// Limits of the listeners, the same as in serve.
const (
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
	// connectionsPerRequest is the number of connections per request, so that there can be idle connections.
	connectionsPerRequest = 4
	// ownFiles is the number of files that an agent needs in addition to the connections of requests.
	ownFiles = 48
	// maxMaxRequests is far above the limit for one session (serve --max-requests-per-session).
	maxMaxRequests = 4096
	// logoutTime limits the logout when the agent stops.
	logoutTime = 5 * time.Second
)

// Config has the values of the flags. Errors name the flag.
type Config struct {
	Server      string
	ExternalURL string // the key server's own URL; empty means Server
	CAFile      string // PEM; empty means the certificates of the system
	TokenFile   string

	Listen     string // unix:///PATH, or host:port with a loopback host
	SocketMode string // in octal digits
	Allow      []string

	HealthListen  string // empty disables the listener
	MetricsListen string // empty disables the listener
	MaxRequests   int    // concurrent requests
	Batch         string // BatchOn or BatchOff

	UserAgent string
	Logger    *slog.Logger
	Clock     func() time.Time
}

// Validate returns an error if the configuration is invalid. It reads only the flags and changes nothing.
func (c *Config) Validate() error {
	_, err := c.parts()
	return err
}

// parts are the parsed settings.
type parts struct {
	address address
	allow   Allow
}

func (c *Config) parts() (parts, error) {
	var p parts
	if err := c.checkServer(); err != nil {
		return p, err
	}
	if c.TokenFile == "" {
		return p, errors.New("--token-file is empty; it must name the file with the projected token of the Pod's service account")
	}
	if c.MaxRequests < 1 || c.MaxRequests > maxMaxRequests {
		return p, fmt.Errorf("--max-requests is %d; it must be from 1 to %d", c.MaxRequests, maxMaxRequests)
	}
	if c.Batch != BatchOn && c.Batch != BatchOff {
		return p, fmt.Errorf("--batch is %q; it must be on or off", c.Batch)
	}
	for flag, at := range map[string]string{"--health-listen": c.HealthListen, "--metrics-listen": c.MetricsListen} {
		if _, _, err := net.SplitHostPort(at); at != "" && err != nil {
			return p, fmt.Errorf("%s is %q; it must be host:port, for instance :8081", flag, at)
		}
	}
	var err error
	if p.address, err = parseAddress(c.Listen, c.SocketMode); err != nil {
		return p, err
	}
	p.allow, err = ParseAllow(c.Allow)
	return p, err
}

func (c *Config) checkServer() error {
	for flag, given := range map[string]string{"--server": c.Server, "--external-url": c.ExternalURL} {
		u, err := url.Parse(given)
		switch {
		case given == "" && flag == "--external-url":
			continue
		case err == nil && u.User != nil:
			return fmt.Errorf("%s contains a user or a password; remove it, because the agent logs in only with --token-file", flag)
		case strings.HasSuffix(strings.TrimRight(given, "/"), "/api"):
			return fmt.Errorf("%s ends in /api; leave /api out, because each call adds it", flag)
		}
		if _, err := client.New(client.Options{BaseURL: given}); err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
	}
	return nil
}

// Agent is a running agent.
type Agent struct {
	cfg     Config
	allow   Allow
	local   bool // the listener is a unix socket, which browsers cannot reach
	finder  *routes.Finder
	client  *client.Client
	token   *token
	gate    *gate
	metrics *metrics
	places  chan struct{}
	system  atomic.Int64 // system id of the key server; 0: not known yet
	// batchers has one batcher for each route that has a batch route. It is empty if batches are off.
	batchers map[string]*batcher

	listener net.Listener
	beside   struct{ health, metrics net.Listener } // nil: no listener
	servers  []*http.Server
	watching context.CancelFunc
	done     sync.WaitGroup
	failed   chan error
}

// Start opens the listeners and returns when the agent accepts requests. Until the key server responds, requests get an
// error. ctx limits only the start.
func Start(ctx context.Context, cfg Config) (*Agent, error) {
	p, err := cfg.parts()
	if err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg, allow: p.allow, local: p.address.socket != "", token: &token{file: cfg.TokenFile},
		places: make(chan struct{}, cfg.MaxRequests), failed: make(chan error, 3)}
	if a.finder, err = routes.NewFinder(); err != nil {
		return nil, err
	}
	// Report a missing token now: it is a mistake in the Pod, which would be hard to find later.
	if _, err := a.token.read(); err != nil {
		return nil, fmt.Errorf("--token-file: %w", err)
	}
	if a.client, err = a.connect(); err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	a.gate = &gate{clock: cfg.Clock, logger: cfg.Logger, token: a.token}
	a.metrics = newMetrics(registry, a)
	if cfg.Batch != BatchOff {
		a.batchers = newBatchers(a)
	}
	if err := a.listen(ctx, p.address, registry); err != nil {
		return nil, errors.Join(err, a.Shutdown(context.WithoutCancel(ctx)))
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	a.watching = stop
	a.done.Go(func() { a.watch(watching) })
	return a, nil
}

func (a *Agent) connect() (*client.Client, error) {
	transport, err := newTransport(a.cfg.Server, a.cfg.CAFile)
	if err != nil {
		return nil, err
	}
	// The key is only in memory, so a stolen session id is useless.
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	return client.New(client.Options{
		BaseURL: a.cfg.Server, ProofURL: a.cfg.ExternalURL, ProofKey: key, HTTPClient: &http.Client{Transport: transport},
		Credentials: a.token, UserAgent: a.cfg.UserAgent, Now: a.cfg.Clock,
	})
}

func (a *Agent) listen(ctx context.Context, at address, registry *prometheus.Registry) error {
	l, err := at.listen(ctx)
	if err != nil {
		return err
	}
	a.listener = l
	accepts := listener.NewAccepts("keyserver_agent_accept_failures_total", a.cfg.Logger)
	registry.MustRegister(accepts)
	// Each request may need a connection to the key server, too.
	places := listener.Fit(a.cfg.Logger, "--max-requests", connectionsPerRequest*a.cfg.MaxRequests, ownFiles+a.cfg.MaxRequests)
	a.serve(netutil.LimitListener(accepts.Watch(l), places), a, places)
	shown := http.NewServeMux()
	shown.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	for _, one := range []struct {
		flag, address string
		listener      *net.Listener
		handler       http.Handler
	}{
		{"--health-listen", a.cfg.HealthListen, &a.beside.health, http.HandlerFunc(a.health)},
		{"--metrics-listen", a.cfg.MetricsListen, &a.beside.metrics, shown},
	} {
		if one.address == "" {
			continue
		}
		if *one.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", one.address); err != nil {
			return fmt.Errorf("%s: %w", one.flag, err)
		}
		a.serve(accepts.Probes(*one.listener), one.handler, 0)
	}
	return nil
}

// serve runs one HTTP server until Shutdown. places is the maximum number of connections that l accepts. If more than
// half of these places are taken, each response closes its connection, so that idle connections do not block other
// clients. If places is 0, responses do not close connections.
func (a *Agent) serve(l net.Listener, handler http.Handler, places int) {
	var taken atomic.Int64
	s := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if places > 0 && taken.Load() > int64(places)/2 {
				w.Header().Set("Connection", "close")
			}
			handler.ServeHTTP(w, r)
		}),
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				taken.Add(1)
			case http.StateClosed, http.StateHijacked:
				taken.Add(-1)
			case http.StateActive, http.StateIdle: // the place was taken in StateNew
			}
		},
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		DisableGeneralOptionsHandler: true, ErrorLog: log.New(logWriter{a.cfg.Logger}, "", 0),
	}
	a.servers = append(a.servers, s)
	a.done.Go(func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			a.failed <- fmt.Errorf("the listener on %s stopped: %w", l.Addr(), err)
		}
	})
}

// logWriter writes messages of net/http to the log at debug level.
type logWriter struct{ logger *slog.Logger }

// Write implements io.Writer.
func (w logWriter) Write(line []byte) (int, error) {
	w.logger.Debug("http server", "message", strings.TrimSpace(string(line)))
	return len(line), nil
}

// Address returns the address of the listener for requests.
func (a *Agent) Address() string {
	if a.local {
		return "unix://" + a.listener.Addr().String()
	}
	return a.listener.Addr().String()
}

// HealthAddress returns the address of --health-listen.
func (a *Agent) HealthAddress() string { return a.beside.health.Addr().String() }

// MetricsAddress returns the address of --metrics-listen.
func (a *Agent) MetricsAddress() string { return a.beside.metrics.Addr().String() }

// Failed returns a channel with the error of a listener that stopped unexpectedly.
func (a *Agent) Failed() <-chan error { return a.failed }

// Shutdown stops accepting requests, waits for running requests until ctx ends, and ends the session.
func (a *Agent) Shutdown(ctx context.Context) error {
	if a.watching != nil {
		a.watching()
	}
	var errs []error
	for _, s := range a.servers {
		if err := s.Shutdown(ctx); err != nil {
			errs = append(errs, fmt.Errorf("requests were still in progress: %w", err), s.Close())
		}
	}
	a.done.Wait()
	for _, b := range a.batchers {
		b.shutdown()
	}
	if a.listener != nil {
		if err := a.listener.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), logoutTime)
	defer cancel()
	if err := a.client.Logout(ending); err != nil {
		// The session expires, and is useless without its key.
		a.cfg.Logger.Warn("the session could not be ended", "error", err.Error())
	}
	a.client.CloseIdleConnections()
	return errors.Join(errs...)
}

// maxFile limits the size of a certificate file, in bytes.
const maxFile = 1 << 20

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s is longer than %d bytes", name, maxFile)
	}
	return text, err
}
