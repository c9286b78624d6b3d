package httpapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

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
	mux     *http.ServeMux
	routes  []Route
	none    *bound // answers unknown paths
	metrics *metrics
	openAPI []byte

	places  *places
	crowded rate.Sometimes // limits warnings about requests without room

	draining context.Context //nolint:containedctx // a state of the server, not of a request
	drain    context.CancelFunc
}

// bound is a route with what is made for it once.
type bound struct {
	Route
	allow    string // of a path whose method is not there
	span     string // what a span of it is called
	measured *measured
	long     bool // Route.long
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
	a := &API{Config: c, mux: http.NewServeMux(), places: newPlaces(c), crowded: rate.Sometimes{Interval: time.Minute}}
	a.draining, a.drain = context.WithCancel(context.Background())
	var err error
	if a.metrics, err = newMetrics(c.Registerer, a.places); err != nil {
		return nil, err
	}
	a.routes = Routes()
	if err := a.mount(a.routes); err != nil {
		return nil, err
	}
	if a.openAPI, err = OpenAPI(); err != nil {
		return nil, err
	}
	return a, nil
}

// Drain ends all waiting: long polls answer at once, and readiness fails so
// that no new work is sent here. It does not wait for requests under way;
// http.Server.Shutdown does.
func (a *API) Drain() { a.drain() }

func (a *API) mount(all []Route) error {
	a.none = a.bind(Route{Path: noRoute, run: notFound, Timeout: shortTimeout, Uncounted: true, Unconditional: true}, "")
	paths := map[string][]*bound{}
	for _, r := range all {
		if r.BodyLimit <= 0 || r.Timeout <= 0 || r.run == nil {
			return fmt.Errorf("httpapi: %s %s has no body limit, timeout or handler", r.Method, r.Path)
		}
		if unsaid := r.unsaid(); len(unsaid) > 0 {
			return fmt.Errorf("httpapi: %s %s does not say what %s names; give it a tag names", r.Method, r.Path, strings.Join(unsaid, ", "))
		}
		paths[r.Path] = append(paths[r.Path], a.bind(r, ""))
	}
	for p, methods := range paths {
		other := a.bind(Route{Path: p, run: notAllowed, Timeout: shortTimeout, Uncounted: true, Unconditional: true}, allowed(methods))
		pattern, word := p, literals[p]
		if word != "" {
			pattern = strings.Replace(p, "/"+word, "/{"+word+"}", 1)
		}
		if rest := methods[0].Rest(); rest != "" {
			stem := strings.TrimSuffix(pattern, "/{"+rest+"}")
			pattern = stem + "/{" + rest + "...}"
			a.mux.HandleFunc(stem, a.unknown) // or ServeMux redirects it to the stem and a slash
		}
		a.mux.Handle(pattern, &resource{api: a, methods: methods, other: other, word: word})
	}
	a.mux.Handle(witnessPath, &resource{
		api: a, methods: []*bound{a.bind(addCheckpointRoute, "")},
		other: a.bind(Route{Path: witnessPath, run: notAllowed, Timeout: shortTimeout, Uncounted: true, Unconditional: true}, http.MethodPost),
	})
	a.mountPages()
	a.mux.HandleFunc("/", a.unknown)
	return nil
}

// allowed are the methods of a path. Where GET is, HEAD is too.
func allowed(methods []*bound) string {
	var allow []string
	for _, m := range methods {
		allow = append(allow, m.Method)
		if m.Method == http.MethodGet {
			allow = append(allow, http.MethodHead)
		}
	}
	slices.Sort(allow)
	return strings.Join(allow, ", ")
}

func (a *API) unknown(w http.ResponseWriter, r *http.Request) { a.to(w, r, a.none) }

// literals are of paths that ServeMux holds to be in conflict with that of another
// route, because an id could be spelt like a word of the other: it is given this
// word of them as a wildcard, and resource looks whether it is there.
var literals = map[string]string{"/api/principals/{id}/delegates/{pid}": "delegates", "/api/audit/{seq}/receipt": "receipt"}

func (a *API) bind(r Route, allow string) *bound {
	return &bound{Route: r, allow: allow, span: strings.TrimSpace(r.Method + " " + r.Path), measured: a.metrics.of(r), long: r.long()}
}

// ServeHTTP implements http.Handler. A path that ServeMux would redirect to
// its clean form is an unknown path: a client that is sent elsewhere would
// follow with its credentials, or lose its body.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := r.URL.EscapedPath()
	if p == "" || p[0] != '/' || (path.Clean(p) != p && path.Clean(p)+"/" != p) {
		a.unknown(w, r)
		return
	}
	a.mux.ServeHTTP(w, r)
}

// to serves a request by a route, or tells whoever only asks where it leads.
func (a *API) to(w http.ResponseWriter, r *http.Request, route *bound) {
	if asked, ok := w.(*inApproval); ok {
		asked.route, asked.request = route, r
		return
	}
	a.serve(w, r, route)
}

// resource is the routes of one path.
type resource struct {
	api     *API
	methods []*bound
	other   *bound
	word    string // that has to stand where it is a wildcard to the mux; empty: none
}

func (s *resource) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.word != "" && r.PathValue(s.word) != s.word {
		s.api.to(w, r, s.api.none)
		return
	}
	method := r.Method
	if method == http.MethodHead { // net/http leaves the body out
		method = http.MethodGet
	}
	for _, m := range s.methods {
		if m.Method == method {
			s.api.to(w, r, m)
			return
		}
	}
	s.api.to(w, r, s.other)
}
