package routes

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// NoRoute is the path of the route for unknown paths, in metrics and logs.
const NoRoute = "none"

// ErrNoRoute is the fault for an unknown path.
var ErrNoRoute = fault.New(fault.NotFound, "there is no such path; GET /api/openapi.json lists all")

// ErrMethod returns the fault for a method that the path does not have. allow lists the methods of the path.
func ErrMethod(allow string) error {
	return fault.New(fault.MethodNotAllowed, "the path does not allow this method; it allows %s", allow)
}

// Mux passes each request to the handler of its route.
type Mux struct {
	mux     *http.ServeMux
	none    http.Handler // handler of unknown paths
	handler func(r Route, allow string) http.Handler
}

// NewMux calls handler once for each route and for AddCheckpoint. It also calls it for other methods of a path, with
// the methods of the path in allow, and for unknown paths, with the path NoRoute. NewMux fails if a route has no body
// limit or timeout, or if a name in its request has no tag "names".
func NewMux(all []Route, handler func(r Route, allow string) http.Handler) (*Mux, error) {
	m := &Mux{mux: http.NewServeMux(), handler: handler, none: handler(refusal(NoRoute), "")}
	paths := map[string][]Route{}
	for _, r := range all {
		if r.BodyLimit <= 0 || r.Timeout <= 0 {
			return nil, fmt.Errorf("routes: %s %s has no body limit or timeout", r.Method, r.Path)
		}
		if unsaid := r.fieldsWithoutKind(); len(unsaid) > 0 {
			return nil, fmt.Errorf("routes: %s %s: %s needs the tag names with the kind of its object", r.Method, r.Path, strings.Join(unsaid, ", "))
		}
		paths[r.Path] = append(paths[r.Path], r)
	}
	for p, methods := range paths {
		pattern, word := p, literals[p]
		if word != "" {
			pattern = strings.Replace(p, "/"+word, "/{"+word+"}", 1)
		}
		if rest := methods[0].Rest(); rest != "" {
			stem := strings.TrimSuffix(pattern, "/{"+rest+"}")
			pattern = stem + "/{" + rest + "...}"
			m.mux.Handle(stem, m.none) // otherwise ServeMux redirects the stem to the stem with a slash
		}
		m.add(pattern, word, methods)
	}
	m.Add(AddCheckpoint.Path, AddCheckpoint)
	m.mux.Handle("/", m.none)
	return m, nil
}

// Add adds a route that is not in the table, at a pattern of http.ServeMux.
func (m *Mux) Add(pattern string, r Route) { m.add(pattern, "", []Route{r}) }

func (m *Mux) add(pattern, word string, methods []Route) {
	one := &resource{none: m.none, word: word, methods: map[string]http.Handler{}}
	for _, r := range methods {
		one.methods[r.Method] = m.handler(r, "")
	}
	one.other = m.handler(refusal(methods[0].Path), allowed(methods))
	m.mux.Handle(pattern, one)
}

// refusal is the route that is used for a request with an unknown path or method.
func refusal(path string) Route {
	return Route{Path: path, Timeout: ShortTimeout, Uncounted: true, Unconditional: true}
}

// allowed lists the methods of a path. A path with GET also has HEAD.
func allowed(methods []Route) string {
	var allow []string
	for _, r := range methods {
		allow = append(allow, r.Method)
		if r.Method == http.MethodGet {
			allow = append(allow, http.MethodHead)
		}
	}
	slices.Sort(allow)
	return strings.Join(allow, ", ")
}

// literals maps the paths that http.ServeMux rejects as ambiguous to one of their words. ServeMux gets a wildcard
// instead of this word, and resource rejects all other values of the wildcard.
var literals = map[string]string{"/api/principals/{id}/delegates/{pid}": "delegates", "/api/audit/{seq}/receipt": "receipt"}

// ServeHTTP implements http.Handler. A path that ServeMux would redirect to its clean form is an unknown path: a
// redirected client would send its credentials again, or lose its body.
func (m *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := r.URL.EscapedPath()
	if p == "" || p[0] != '/' || (path.Clean(p) != p && path.Clean(p)+"/" != p) {
		m.none.ServeHTTP(w, r)
		return
	}
	m.mux.ServeHTTP(w, r)
}

// resource contains the handlers of one path.
type resource struct {
	methods map[string]http.Handler
	other   http.Handler
	none    http.Handler
	word    string // name of a wildcard in the path, and the only valid value of this wildcard; empty if there is none
}

func (s *resource) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.word != "" && r.PathValue(s.word) != s.word {
		s.none.ServeHTTP(w, r)
		return
	}
	method := r.Method
	if method == http.MethodHead { // net/http omits the body
		method = http.MethodGet
	}
	if h, found := s.methods[method]; found {
		h.ServeHTTP(w, r)
		return
	}
	s.other.ServeHTTP(w, r)
}
