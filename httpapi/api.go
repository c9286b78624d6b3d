package httpapi

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/clientaddr"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/tracing"
)

// Config is the configuration of the API. Limits that are zero have their defaults.
type Config struct {
	Operations *verified.Service
	Sessions   Sessions
	Approvals  Approvals
	Logger     *slog.Logger
	// Witness cosigns checkpoints of logs.
	Witness Witness
	// Pages are served below /console/. It is optional.
	Pages Pages
	// Site contains the URLs under which clients reach the key server. The URL in a DPoP proof is compared with them.
	Site session.Site
	// Clock is time.Now if nil.
	Clock func() time.Time
	// Registerer registers the metrics. If it is nil, they are counted but not exported.
	Registerer prometheus.Registerer
	// Admission returns nil if the key server admits this build. Otherwise it returns a fault with
	// the reason and the time of the next check. Every request calls it, so it must not block. If it
	// is nil, every build is admitted.
	Admission func() error
	// Parts returns additional parts for the response of GET /api/ready. It is optional.
	Parts func() []keyserver.Readiness
	// Warnings returns the warnings in the response of GET /api/ready. It is optional.
	Warnings func() []string
	// Tracer starts the spans of requests. It is optional.
	Tracer *tracing.Tracer
	// Random is the source of request ids. The default is the random source of the system.
	Random io.Reader
	// SpoolDir is the directory for messages whose request names the key after the message. The default is the system's
	// directory for temporary files.
	SpoolDir string

	// Proxies are the proxies whose X-Forwarded-For header is trusted.
	Proxies clientaddr.Proxies

	MaxInFlight int // concurrent requests in the process; default 1024
	MaxWaiting  int // open long polls; default 1024
	MaxStreams  int // messages that are processed while they are read; default 1024

	// Restrain returns OVERLOADED if too many operations of the caller's principal were refused. It is optional.
	Restrain func(by keyserver.Caller) error

	MaxConnections int // a principal may use a quarter of them; default 4096
	// Protect prevents the eviction of the connection of a request until release is called. ctx is the context of the
	// request. It is optional.
	Protect func(ctx context.Context) (release func())
	// Delay delays the next read from the connection of a request. ctx is the context of the request. It is optional.
	Delay func(ctx context.Context, d time.Duration)

	// Limits of concurrent requests that have no session, or whose session id is not checked yet: 1024 by default, and
	// 128 from one address.
	MaxStrangers           int
	MaxStrangersPerAddress int

	// Limits of stored bytes of messages that arrive before the name of their key: 1 GiB by default, and 64 MiB in one
	// session.
	MaxSpoolBytes           int64
	MaxSpoolBytesPerSession int64
}

// API is the handler of /api.
type API struct {
	Config
	mux     *routes.Mux
	routes  []routes.Route
	metrics *metrics
	openAPI []byte

	places  *places
	crowded rate.Sometimes // limits warnings about requests that exceed a limit

	draining context.Context //nolint:containedctx // a state of the server, not of a request
	drain    context.CancelFunc
}

// bound is a route with its handler and its metrics.
type bound struct {
	routes.Route
	api      *API
	run      func(*exchange) (any, error)
	allow    string // the Allow header if the path exists but does not have the method; otherwise empty
	span     string // the name of its spans
	measured *measured
	long     bool // Route.Long
}

// New returns the API. It fails if a required field is nil or the table of routes is incomplete.
func New(c Config) (*API, error) {
	if c.Operations == nil || c.Sessions == nil || c.Approvals == nil || c.Logger == nil || c.Site == nil {
		return nil, errors.New("httpapi: Operations, Sessions, Approvals, Logger and Site are required")
	}
	if c.Clock == nil {
		c.Clock = time.Now //nolint:forbidigo // the default of the injected clock
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	for _, ceiling := range []struct {
		value *int
		def   int
	}{
		{&c.MaxInFlight, DefaultMaxInFlight}, {&c.MaxWaiting, DefaultMaxWaiting}, {&c.MaxStreams, DefaultMaxStreams},
		{&c.MaxConnections, DefaultMaxConnections}, {&c.MaxStrangers, DefaultMaxStrangers}, {&c.MaxStrangersPerAddress, DefaultMaxStrangersPerAddress},
	} {
		if *ceiling.value <= 0 {
			*ceiling.value = ceiling.def
		}
	}
	if c.MaxSpoolBytes <= 0 {
		c.MaxSpoolBytes = DefaultMaxSpoolBytes
	}
	if c.MaxSpoolBytesPerSession <= 0 {
		c.MaxSpoolBytesPerSession = DefaultMaxSpoolBytesPerSession
	}
	a := &API{Config: c, places: newPlaces(c), crowded: rate.Sometimes{Interval: time.Minute}}
	a.draining, a.drain = context.WithCancel(context.Background())
	var err error
	if a.metrics, err = newMetrics(c.Registerer, a.places); err != nil {
		return nil, err
	}
	a.routes = routes.All()
	if err := checkHandlers(a.routes); err != nil {
		return nil, err
	}
	if a.mux, err = routes.NewMux(a.routes, a.bind); err != nil {
		return nil, err
	}
	a.mountPages()
	if a.openAPI, err = routes.OpenAPI(); err != nil {
		return nil, err
	}
	return a, nil
}

// Drain prepares a shutdown: long polls respond immediately, and readiness fails so that the server gets no new
// requests. Drain does not wait for requests in progress; http.Server.Shutdown does.
func (a *API) Drain() {
	a.drain()
	a.places.pace.Lift()
}

func (a *API) bind(r routes.Route, allow string) http.Handler {
	b := &bound{Route: r, api: a, allow: allow, span: strings.TrimSpace(r.Method + " " + r.Path), measured: a.metrics.of(r), long: r.Long()}
	switch {
	case allow != "":
		b.run = notAllowed
	case r.Path == routes.NoRoute:
		b.run = notFound
	case unlisted[r.Name] != nil:
		b.run = unlisted[r.Name]
	default:
		b.run = handlers[r.Name].run
	}
	return b
}

// unlisted contains the handlers of routes that are not in the table of routes.
var unlisted = map[string]func(*exchange) (any, error){
	routes.AddCheckpoint.Name: addCheckpoint, pageRoute.Name: page, reportRoute.Name: report,
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// ServeHTTP serves a request of the route. If w is a storedRequest, ServeHTTP only stores the route and the request.
func (b *bound) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if asked, ok := w.(*storedRequest); ok {
		asked.route, asked.request = b, r
		return
	}
	b.api.serve(w, r, b)
}
