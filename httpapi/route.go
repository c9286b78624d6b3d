package httpapi

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/hmacbody"
	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/wire"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Route is everything about one route. The limits are part of it, so that none
// can be forgotten: New refuses a route without them. What an extension is says
// contract 1.2.
type Route struct {
	// Name is the operationId: verb and noun, from which generated clients make
	// the name of a function.
	Name string
	// Tag is the noun that the route is about; Routes sets it.
	Tag       string
	Method    string
	Path      string
	Summary   string
	Extension bool // not in the contract, or named there without being shown
	// Session says that a live session is required. Without it anybody may ask.
	Session bool
	// Operations of the key server that the route needs; a role must grant each.
	Operations []keyserver.Operation
	// Names is what the id in the path of a schema.ByID names, for approvals;
	// unnamed where that cannot become something else.
	Names keyserver.SubjectKind
	// Makes is the kind of what the route makes, which may be made with an owner's
	// mark on it; empty where nothing is made, or nothing that has an owner.
	Makes keyserver.ChangeKind
	// BodyLimit is the most bytes of a request body, as they are sent.
	BodyLimit int64
	// Timeout bounds reading the body and doing the work, together.
	Timeout time.Duration
	// Faults are the codes that are specific to the route.
	Faults []fault.Code
	// Waits says that the route may hold a connection without working.
	Waits bool
	// Counts says that the route may count a use of a key, so that asking twice
	// may count twice.
	Counts bool
	// Many marks a route with many objects in one request, if long cannot tell that from its name
	// and its body.
	Many bool
	// Uncounted routes are answered however much else is going on.
	Uncounted bool
	// Unconditional routes are answered by a build that is not admitted, too.
	Unconditional bool

	Request  reflect.Type // a struct of package schema's tags
	Response reflect.Type

	effect   string         // the rule of the approval policy for it, besides those of Operations
	executes bool           // it answers what another route answers
	streams  bool           // the body is read during the work
	form     *hmacbody.Form // of such a body; nil: the route reads it like any other
	judged   []fault.Code   // faults that come with the filled answer
	run      func(*exchange) (any, error)
}

const (
	smallBody    = 64 << 10
	shortTimeout = 15 * time.Second
)

// nothing is the request of a route that takes none.
type nothing struct{}

// call is what a handler knows about a request besides its input. The caller
// is an argument and not a context value, so that no layer can lose it.
type call struct {
	by keyserver.Caller
	session.From
	proof session.Proof
	// authorization holds the header's values, for a login that is made from a
	// session; every other handler finds its caller in by.
	authorization []string
	certificates  []*x509.Certificate // of the TLS connection, the client's own first
}

// endpoint completes a route with its handler: decode, call, encode.
func endpoint[In, Out any](r Route, handle func(*API, context.Context, call, In) (Out, error)) Route {
	r.Request, r.Response = reflect.TypeFor[In](), reflect.TypeFor[Out]()
	table := wire.Of(r.Request)
	r.judged = append(r.judged, verdicts...)
	r.run = func(x *exchange) (any, error) {
		in := new(In)
		if err := x.decode(table, in); err != nil {
			return nil, err
		}
		if err := x.begin(in); err != nil {
			return nil, err
		}
		out := new(Out)
		var err error
		*out, err = handle(x.api, x.ctx, x.call, *in)
		return x.judge(out, err)
	}
	return r.withDefaults()
}

// begin is called between reading a request and doing what it asks. What stands
// in an approval has the place of the request that is about it.
func (x *exchange) begin(in any) error {
	if x.stored != nil {
		return x.stored.read(in)
	}
	return x.enter()
}

func (r Route) withDefaults() Route {
	if r.BodyLimit == 0 {
		r.BodyLimit = smallBody
	}
	if r.Timeout == 0 {
		r.Timeout = shortTimeout
	}
	return r
}

// long reports whether one request may take a core for milliseconds: the route answers a list,
// works on several objects, or executes another request.
func (r Route) long() bool {
	switch {
	case r.Request == nil || r.Waits || r.streams:
		return false
	case r.executes || r.Many || strings.HasPrefix(r.Name, "list") || strings.HasPrefix(r.Name, "find"):
		return true
	}
	return slices.ContainsFunc(wire.Of(r.Request).Body, func(f wire.Field) bool {
		return f.Value.Kind == wire.Array && f.Value.Elem.Kind == wire.Object
	})
}

// judge keeps the filled answer where the fault is a verdict on it.
func (x *exchange) judge(out any, err error) (any, error) {
	if err == nil {
		return out, nil
	}
	var f *fault.Error
	verdict, ok := out.(interface{ Judge(code, detail string) })
	if !ok || !errors.As(err, &f) || !slices.Contains(x.route.judged, f.Code) {
		return nil, err
	}
	verdict.Judge(string(f.Code), f.Detail)
	return out, err
}

// Named reports whether a request names an object that may be missing. Of any
// other route a 404 can only mean that the service does not have it.
func (r Route) Named() bool {
	return slices.ContainsFunc(r.Faults, func(c fault.Code) bool { return edges[c].status == http.StatusNotFound })
}

// MediaType is that of an answer which is no failure.
func (r Route) MediaType() string {
	if r.Response != nil {
		if plain, ok := reflect.New(r.Response).Interface().(schema.Plain); ok {
			return plain.MediaType()
		}
	}
	return mediaJSON
}

// Rest is the parameter at the end of the path that may have slashes, empty where
// there is none.
func (r Route) Rest() string {
	for _, f := range wire.Of(r.Request).Path {
		if f.Rest {
			return f.Name
		}
	}
	return ""
}

// every returns all codes that the route can answer, for the reference.
func (r Route) every() []fault.Code {
	codes := append([]fault.Code{fault.BadRequest, fault.PayloadTooLarge, fault.OpFailed, fault.RequestTimeout, fault.Overloaded}, r.Faults...)
	if r.Uncounted {
		codes = slices.DeleteFunc(codes, func(c fault.Code) bool { return c == fault.Overloaded })
	}
	if r.Request != nil && len(wire.Of(r.Request).Body) > 0 {
		codes = append(codes, fault.UnsupportedEncoding)
	}
	if !r.Unconditional {
		codes = append(codes, fault.BuildNotAdmitted)
	}
	if r.Session {
		codes = append(codes, fault.SessionNotFound, fault.SessionExpired, fault.ScopedExpired, fault.RequestLimit,
			fault.PrincipalOff, fault.DelegatorRefused,
			fault.StoreUnavailable, fault.StoreTampered, fault.NotCurrent, fault.AuditUnavailable, fault.ProofRequired, fault.ProofKeyMismatch, fault.ProofTokenMismatch,
			fault.CertificateMismatch)
		codes = append(codes, proofFaults...)
	}
	if len(r.Operations) > 0 {
		codes = append(codes, fault.AccessDenied, fault.PrincipalOff, fault.DelegatorRefused, fault.NotInScope,
			fault.CertificateRevoked, fault.RevocationUnavailable, fault.RevocationStale, fault.ApprovalRequired)
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}
