package routes

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/wire"
	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/hmacbody"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Route describes one route of /api.
type Route struct {
	// Name is the operationId: a verb and a noun. Generated clients derive names of functions from it.
	Name string
	// Tag is the subject of the route; All sets it.
	Tag       string
	Method    string
	Path      string
	Summary   string
	Extension bool // the API contract does not contain the route, or only names it (contract 1.2)
	// Session: the request needs a valid session. Otherwise any client may send the request.
	Session bool
	// Operations of the key server that the route needs. A role of the caller must grant each operation.
	Operations []keyserver.Operation
	// Names is the kind of object that the id in the path of a schema.ByID names, for approvals. It is
	// Unnamed if that id can never name another object.
	Names keyserver.SubjectKind
	// Makes is the kind of object that the route creates, if objects of this kind can have an owner mark; otherwise
	// empty.
	Makes keyserver.ChangeKind
	// BodyLimit is the maximum size of a request body as it is sent, in bytes.
	BodyLimit int64
	// Timeout is the time limit for reading the body and doing the work together.
	Timeout time.Duration
	// Faults are the codes that are specific to the route.
	Faults []fault.Code
	// Waits: a request of the route may keep its connection open without working.
	Waits bool
	// Counts: a request of the route may count a use of a key, so a repeated request may count two uses.
	Counts bool
	// Many marks a route with many objects in one request, if Long cannot tell this from the name and the body of the
	// route.
	Many bool
	// Uncounted routes take no part in the limits of concurrent requests, so they respond under any load.
	Uncounted bool
	// Unconditional routes also respond if the build is not admitted.
	Unconditional bool

	Request  reflect.Type // a struct with the tags of package schema
	Response reflect.Type

	// Effect is the key of an effect (keyserver.Effects), whose approval rule also applies to the route; optional.
	Effect string
	// Executes: the route executes a stored request and returns the response of that request's route.
	Executes bool
	// Streams: the body is read, or the response sent, while the operation runs.
	Streams bool
	// Form is the form of a body that is read while the operation runs. It is nil if the body is decoded before the
	// operation.
	Form *hmacbody.Form
	// VerdictCodes are the codes that the route returns in its response type, not in an error body.
	VerdictCodes []fault.Code
}

const (
	// SmallBody is the usual body limit, in bytes.
	SmallBody = 64 << 10
	// ShortTimeout is the usual timeout.
	ShortTimeout = 15 * time.Second
	// HMACBodyLimit is enough for the longest message if each character of its base64 is written as an escape of six
	// characters. A message that is too long is refused when it is decoded, with a better error.
	HMACBodyLimit = (keyserver.MaxMessage+2)/3*4*6 + SmallBody
)

// Nothing is the request of a route without parameters.
type Nothing struct{}

// endpoint completes a route whose request is decoded before the work begins.
func endpoint[In, Out any](r Route) Route {
	r.Request, r.Response = reflect.TypeFor[In](), reflect.TypeFor[Out]()
	r.VerdictCodes = append(r.VerdictCodes, Verdicts...)
	return r.withDefaults()
}

// streamed completes a route that reads its body, in its own format, while it processes the request. The type In
// describes the body.
func streamed[In, Out any](r Route) Route {
	r.Request, r.Response, r.Streams = reflect.TypeFor[In](), reflect.TypeFor[Out](), true
	return r.withDefaults()
}

// download completes a route that sends its response while it creates the response.
func download[In any](r Route) Route {
	r.Request, r.Response, r.Streams = reflect.TypeFor[In](), reflect.TypeFor[schema.Octets](), true
	return r.withDefaults()
}

func (r Route) withDefaults() Route {
	if r.BodyLimit == 0 {
		r.BodyLimit = SmallBody
	}
	if r.Timeout == 0 {
		r.Timeout = ShortTimeout
	}
	return r
}

// Long reports whether one request may use a core for milliseconds: the route returns a list, processes
// several objects, or executes another request.
func (r Route) Long() bool {
	switch {
	case r.Request == nil || r.Waits || r.Streams:
		return false
	case r.Executes || r.Many || strings.HasPrefix(r.Name, "list") || strings.HasPrefix(r.Name, "find"):
		return true
	}
	return slices.ContainsFunc(wire.Of(r.Request).Body, func(f wire.Field) bool {
		return f.Value.Kind == wire.Array && f.Value.Elem.Kind == wire.Object
	})
}

// Named reports whether a request names an object that may not exist. For any other route, 404 means that the key
// server does not have the route.
func (r Route) Named() bool {
	return slices.ContainsFunc(r.Faults, func(c fault.Code) bool { return faultResponses[c].Status == http.StatusNotFound })
}

// MediaType returns the media type of a successful response.
func (r Route) MediaType() string {
	if r.Response != nil {
		if plain, ok := reflect.New(r.Response).Interface().(schema.Plain); ok {
			return plain.MediaType()
		}
	}
	return MediaJSON
}

// Rest returns the parameter at the end of the path that may contain slashes, or "" if there is none.
func (r Route) Rest() string {
	for _, f := range wire.Of(r.Request).Path {
		if f.Rest {
			return f.Name
		}
	}
	return ""
}

// Codes returns all codes with which the route can fail.
func (r Route) Codes() []fault.Code {
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
		codes = append(codes, ProofFaults...)
	}
	if len(r.Operations) > 0 {
		codes = append(codes, fault.AccessDenied, fault.PrincipalOff, fault.DelegatorRefused, fault.NotInScope,
			fault.CertificateRevoked, fault.RevocationUnavailable, fault.RevocationStale, fault.ApprovalRequired)
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}
