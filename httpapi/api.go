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

// Config is what the API needs. Zero limits take the defaults.
type Config struct {
	Operations *verified.Service
	Sessions   Sessions
	Approvals  Approvals
	Logger     *slog.Logger
	// Witness cosigns checkpoints of logs.
	Witness Witness
	// Pages are served below /console/; nil: none.
	Pages Pages
	// Site is where clients reach the service. Proofs are held against it.
	Site session.Site
	// Clock is time.Now when nil.
	Clock func() time.Time
	// Registerer takes the metrics; nil: they are counted and not shown.
	Registerer prometheus.Registerer
	// Admission answers nil while the key server admits this build, and otherwise
	// a fault that says why not and when that is looked at again. It is asked on
	// every request, so it must answer from memory. nil: every build is admitted.
	Admission func() error
	// Parts are further parts of GET /api/ready; nil: none.
	Parts func() []keyserver.Readiness
	// Warnings are what GET /api/ready says beside its parts; nil: nothing.
	Warnings func() []string
	// Tracer makes spans of requests; nil: nobody does.
	Tracer *tracing.Tracer
	// Random draws request ids; nil: the system's source.
	Random io.Reader
	// SpoolDir takes messages that come before the name of their key; empty:
	// the system's directory for temporary files.
	SpoolDir string

	// Proxies are believed in what they say of where a request comes from.
	Proxies clientaddr.Proxies

	MaxInFlight int // requests at work in the process; default 1024
	MaxWaiting  int // long polls held open; default 1024
	MaxStreams  int // messages that are read while they are worked on; default 1024

	// Restrain returns OVERLOADED if the principal of a caller was refused too many operations.
	// It is optional.
	Restrain func(by keyserver.Caller) error

	MaxConnections int // one principal may keep a quarter of them busy; default 4096
	// Protect prevents the eviction of the connection of a request until release is called. ctx is
	// that of the request. It is optional.
	Protect func(ctx context.Context) (release func())
	// Delay delays the next read from the connection of a request. ctx is that of the request. It is
	// optional.
	Delay func(ctx context.Context, d time.Duration)

	// Of requests for which no session was shown, or none yet; default 1024 and
	// 128 of them from one address.
	MaxStrangers           int
	MaxStrangersPerAddress int

	// Of messages that come before the name of their key; default 1 GiB, and 64
	// MiB of it in one session.
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
	crowded rate.Sometimes // limits warnings about requests without room

	draining context.Context //nolint:containedctx // a state of the server, not of a request
	drain    context.CancelFunc
}

// bound is a route with its handler and its metrics.
type bound struct {
	routes.Route
	api      *API
	run      func(*exchange) (any, error)
	allow    string // of a path whose method is not there
	span     string // what a span of it is called
	measured *measured
	long     bool // Route.Long
}

// New returns the API. It fails where the table of routes is not complete.
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

// Drain ends all waiting: long polls answer at once, and readiness fails so
// that no new work is sent here. It does not wait for requests under way;
// http.Server.Shutdown does.
func (a *API) Drain() {
	a.drain()
	a.places.pace.Lift()
}

// bind returns the handler of a route of the mux.
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

// unlisted has the handlers of routes that are not in the table.
var unlisted = map[string]func(*exchange) (any, error){
	routes.AddCheckpoint.Name: addCheckpoint, pageRoute.Name: page, reportRoute.Name: report,
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// ServeHTTP serves a request of the route, or tells an approval which route its request has.
func (b *bound) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if asked, ok := w.(*inApproval); ok {
		asked.route, asked.request = b, r
		return
	}
	b.api.serve(w, r, b)
}
