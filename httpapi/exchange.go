package httpapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/keyserver-operator/keyserver-operator/clients/go/wire"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/clientaddr"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/tracing"
)

// exchange is the state of one request.
type exchange struct {
	api    *API
	w      http.ResponseWriter
	r      *http.Request
	ctx    context.Context //nolint:containedctx // lives exactly as long as the request
	route  *bound
	call   call
	start  time.Time
	random [12]byte // source of the request id; a local variable would be allocated on the heap

	stored *storedRequest // set if this request is stored in an approval; otherwise nil

	from     netip.Addr // address of the client
	release  func()     // releases the session
	place    *quota.Quota[keyserver.PrincipalRef]
	member   *quota.Member[netip.Prefix] // the place of a request without a session
	refused  bool                        // the request was refused a place; it uses one of places.refused
	answered bool
	counted  bool   // it has a place in places.underWay
	expose   func() // ends the protection of its connection from eviction; may be nil
	endTurn  func() // ends its turn; may be nil
	// The bytes of this request that places.bodies and places.unread count.
	bodyBytes, unreadBytes int64
	bodySeen               int64     // bytes of the body that have arrived
	limited                io.Reader // the body within the limit of the route, for bodyReader

	span tracing.Span
	code fault.Code // empty for success
}

// serve runs one request. The steps that every request needs happen here, in this order: request id,
// time limit, admission of the build, session or the place of a request without one, handler.
func (a *API) serve(w http.ResponseWriter, r *http.Request, route *bound) {
	x := &exchange{api: a, w: w, r: r, route: route, start: a.Clock()}
	x.from = a.Proxies.Client(clientaddr.OfRequest(r.RemoteAddr), r.Header["X-Forwarded-For"])
	x.call.From = session.From{RequestID: x.requestID(), Address: addressText(x.from), Stranger: x}
	x.call.proof, x.call.authorization = a.proof(r), r.Header["Authorization"]
	if r.TLS != nil {
		x.call.certificates = r.TLS.PeerCertificates
	}
	defer x.finish()
	x.setHeaders()
	x.setDeadlines()

	ctx := r.Context()
	if a.Tracer != nil {
		ctx = x.trace(ctx)
	}
	limited := &lazyDeadline{parent: ctx, at: in(route.Timeout)}
	defer limited.end()
	x.ctx = limited

	out, err := x.handle()
	if err != nil {
		x.fail(out, err)
		return
	}
	x.succeed(out)
}

// trace starts the span of the request. Its name is the route and not the path, because the path contains ids.
func (x *exchange) trace(ctx context.Context) context.Context {
	var from tracing.Carrier = propagation.MapCarrier(nil)
	if len(x.r.Header["Traceparent"]) > 0 { // the lookup of "traceparent" by Header.Get would allocate memory
		from = propagation.HeaderCarrier(x.r.Header)
	}
	ctx, x.span = x.api.Tracer.StartServerSpan(ctx, x.route.span, from)
	if x.span.Recorded() {
		x.span.Set(tracing.Method, method(x.r.Method))
		x.span.Set(tracing.Route, x.route.Path)
		x.span.Set(tracing.RequestID, x.call.RequestID)
	}
	return ctx
}

// handle checks the admission of the build and the headers, and authenticates the request before it runs the handler. A
// request in a session takes a place of that session. A request without a session takes a place for such requests, and
// so does a request whose session id must be looked up in the database. If the build is not admitted, requests with and
// without a session get the same response.
func (x *exchange) handle() (any, error) {
	refused := x.admit()
	if refused == nil {
		x.call.For, refused = purpose(x.r.Header["X-Keyserver-For"])
	}
	if refused == nil {
		x.ctx, refused = x.owned(x.ctx)
	}
	if refused != nil || !x.route.Session {
		if err := x.TakePlace(); err != nil {
			return nil, err
		}
		if refused != nil {
			return nil, refused
		}
		return x.route.run(x)
	}
	if err := x.authenticate(); err != nil {
		if full := x.TakePlace(); full != nil {
			return nil, full
		}
		return nil, err
	}
	if err := x.count(); err != nil {
		return nil, err
	}
	if err := x.restrain(); err != nil {
		return nil, err
	}
	if err := x.yield(); err != nil {
		return nil, err
	}
	return x.route.run(x)
}

func (x *exchange) setHeaders() {
	h := x.w.Header()
	h["X-Request-Id"] = []string{x.call.RequestID}
	h["Cache-Control"] = headerNoStore
	h["X-Content-Type-Options"] = headerNoSniff
	h["Content-Type"] = headerJSON
}

// All responses share these header values, so that a header needs no allocation.
var (
	headerNoStore = []string{"no-store"}
	headerNoSniff = []string{"nosniff"}
	headerJSON    = []string{"application/json"}
)

const (
	// answerTime is the time limit for writing a response, in addition to the timeout of the route.
	answerTime = 15 * time.Second
	// bodyTime is the time limit for receiving a small body.
	bodyTime = 5 * time.Second
)

// setDeadlines sets the read and write deadlines of the connection. The end of the context does not end a read from a
// client that sends one byte a minute, and net/http continues to read after a refusal. If the writer supports no
// deadlines, as in tests, setDeadlines does nothing.
func (x *exchange) setDeadlines() {
	reading := x.route.Timeout
	if x.awaitsSmallBody() {
		reading = min(bodyTime, reading)
	}
	rc := http.NewResponseController(x.w)
	_ = rc.SetReadDeadline(in(reading))
	_ = rc.SetWriteDeadline(in(x.route.Timeout + answerTime))
}

// in returns the time that is d from now. It is a deadline for a request or its connection, in the time of the
// machine's clock.
func in(d time.Duration) time.Time {
	return time.Now().Add(d) //nolint:forbidigo // no decision depends on it but when to hang up
}

func (x *exchange) awaitsSmallBody() bool {
	return x.route.BodyLimit <= routes.SmallBody && x.r.Body != http.NoBody
}

// bodyArrived extends the read deadline to the timeout of the route. In HTTP/1, the request ends when the read deadline
// passes, even if no read is in progress.
func (x *exchange) bodyArrived() {
	if x.awaitsSmallBody() {
		_ = http.NewResponseController(x.w).SetReadDeadline(in(x.route.Timeout - x.api.Clock().Sub(x.start)))
	}
}

// maxToken is the maximum length in bytes of a session id that is looked up.
const maxToken = 512

// authenticate finds the session of the request. A request whose session must be read from the database has taken a
// place for requests without a session; authenticate releases this place after a success.
func (x *exchange) authenticate() (err error) {
	x.call.by, x.release, err = x.api.caller(x.ctx, &x.call)
	if err == nil && x.member != nil {
		x.member.Leave()
		x.member = nil
	}
	return err
}

// caller finds the caller by the session id and the proof of the request. It also returns a function that releases the
// session.
func (a *API) caller(ctx context.Context, c *call) (keyserver.Caller, func(), error) {
	token, bound, err := credential(c.authorization)
	if err != nil {
		return keyserver.Caller{}, nil, err
	}
	c.proof.Claimed = bound
	return a.Sessions.Authenticate(ctx, token, c.proof, c.From)
}

var (
	errNoToken = fault.New(fault.SessionNotFound, "the request has no Authorization header; log in with POST /api/sessions and send Authorization: Bearer <session id>")
	errTokens  = fault.New(fault.SessionNotFound, "the Authorization header must be sent once, as Bearer or DPoP and one session id")
)

// credential returns the session id. bound reports whether the client uses the authentication scheme of a bound
// session.
func credential(values []string) (token string, bound bool, err error) {
	if len(values) == 0 {
		return "", false, errNoToken
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	token = strings.TrimLeft(token, " ") // RFC 9110 section 11.4: one space or more
	bound = strings.EqualFold(scheme, "DPoP")
	if len(values) > 1 || !ok || !bound && !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxToken {
		return "", false, errTokens
	}
	return token, bound, nil
}

// decode decodes path, query and body of the request into in.
func (x *exchange) decode(table *wire.Table, in any) error {
	if len(table.Path) > 0 {
		if err := table.DecodePath(x.r.PathValue, in); err != nil {
			return routes.Refused(err)
		}
	}
	if err := table.DecodeQuery(x.r.URL.RawQuery, in); err != nil {
		return routes.Refused(err)
	}
	if x.r.Body == http.NoBody && len(table.Body) == 0 {
		return nil
	}
	buf := buffers.Get().(*bytes.Buffer) //nolint:errcheck // the pool holds nothing else
	defer recycle(buf)
	if _, err := buf.ReadFrom(paidReader{x, x.body()}); err != nil {
		return err
	}
	x.bodyArrived()
	if err := x.takeTurn(); err != nil { // parsing a long body as JSON counts as long work, too
		return err
	}
	return routes.Refused(table.DecodeBody(buf.Bytes(), in))
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxKept is the largest buffer that the pool keeps, in bytes.
const maxKept = 256 << 10

// recycle clears a buffer and returns it to the pool. A request may have contained a password or a
// key.
func recycle(buf *bytes.Buffer) {
	clear(buf.Bytes())
	if buf.Cap() > maxKept {
		return
	}
	buf.Reset()
	buffers.Put(buf)
}

// body returns the request body within the limit of the route. Its errors are faults.
func (x *exchange) body() io.Reader {
	if err := routes.RefuseEncoded(x.r); err != nil {
		return refusedBody{err}
	}
	x.limited = http.MaxBytesReader(x.w, x.r.Body, x.route.BodyLimit)
	return bodyReader{x}
}

// refusedBody is a body whose reads fail.
type refusedBody struct{ error }

// Read implements io.Reader.
func (r refusedBody) Read([]byte) (int, error) { return 0, r.error }

// paidReader counts the bytes of a body beyond routes.SmallBody for the principal. It rejects a long body if the
// principal has used its share of bytes, or if no role grants the operations of the route.
type paidReader struct {
	x *exchange
	io.Reader
}

func (p paidReader) Read(b []byte) (int, error) {
	small := p.x.bodySeen <= routes.SmallBody
	n, err := p.Reader.Read(b)
	if small && p.x.bodySeen > routes.SmallBody {
		if refusal := p.x.entitled(); refusal != nil {
			return n, refusal
		}
	}
	if due := p.x.bodySeen - routes.SmallBody - p.x.bodyBytes; due > 0 {
		if p.x.api.places.bodies.Take(p.x.payer(), due) != quota.Taken {
			return n, fault.Temporary(fault.Overloaded, fault.ScopeSession, time.Second,
				"body: too many bytes of request bodies in total or from this principal; send fewer long requests at the same time")
		}
		p.x.bodyBytes += due
	}
	return n, err
}

// entitled fails with ACCESS_DENIED if no role of the caller grants the operations of the route.
func (x *exchange) entitled() error {
	for _, op := range x.route.Operations {
		if err := x.api.Operations.Entitled(x.ctx, x.call.by, op); err != nil {
			return err
		}
	}
	return nil
}

// bodyReader counts the bytes of a body and returns errors as faults. It reads a long body more slowly if the principal
// has sent more bytes of long bodies than its share.
type bodyReader struct{ x *exchange }

func (b bodyReader) Read(p []byte) (int, error) {
	x := b.x
	if x.bodySeen > routes.SmallBody && x.paceBody() {
		p = p[:min(len(p), readAtATime)]
	}
	n, err := x.limited.Read(p)
	x.bodySeen += int64(n)
	if places := x.api.places; x.bodySeen > routes.SmallBody && places.turns.Crowded() {
		places.read.Count(x.payer(), n)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = bodyFault(err)
	}
	return n, err
}

func bodyFault(err error) error {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return fault.New(fault.PayloadTooLarge, "body: must have at most %d bytes, the limit of this route", large.Limit).
			Audited(fault.ReasonBadMessage)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.New(fault.RequestTimeout, "body: did not arrive within the time limit of this route").Because(err)
	default: // the connection broke or the body has wrong framing; the client rarely reads this error
		return fault.New(fault.BadRequest, "body: could not be read completely; send it again").Because(err).Audited(fault.ReasonBadMessage)
	}
}

// addressText returns the client's address, or "" if it has none, as in tests.
func addressText(from netip.Addr) string {
	if !from.IsValid() {
		return ""
	}
	return from.String()
}
