package httpapi

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
)

// raw is a response body that is already JSON and ends with a newline. Several requests share the bytes, so they are
// sent unchanged.
type raw []byte

// succeed responds with 200.
func (x *exchange) succeed(out any) { x.write(http.StatusOK, out) }

// fail responds with a fault. out is the response of a verified write that the second read did not confirm, and nil
// otherwise.
func (x *exchange) fail(out any, err error) {
	x.shortenReadDeadline()
	f := x.faultOf(err)
	e := routes.ResponseTo(f.Code)
	x.code = f.Code
	x.report(f, e, err)
	x.setFaultHeaders(f, e)
	if out == nil {
		out = errorBody(x, f, e)
	}
	x.write(e.Status, out)
}

// refusedTime is how long the remaining body of a request may take to arrive after the request was refused.
const refusedTime = time.Second

// shortenReadDeadline shortens the read deadline of HTTP/1. Before net/http sends a refusal, it reads the remaining
// body to reuse the connection. Without a shorter deadline, the caller would get the refusal only after the timeout of
// the route. HTTP/2 does not wait for the body.
func (x *exchange) shortenReadDeadline() {
	if x.r.ProtoMajor == 1 && x.r.Body != http.NoBody {
		_ = http.NewResponseController(x.w).SetReadDeadline(in(refusedTime))
	}
}

// faultOf turns any error into a fault. The text of an error that is not a fault is only logged and not sent to the
// caller.
func (x *exchange) faultOf(err error) *fault.Error {
	if f := fault.As(err); f != nil && routes.Status(f.Code) != 0 {
		return f
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		// A cancelled context means that the client has disconnected, so it does not read the response.
		return fault.New(fault.RequestTimeout, "the request timed out; a write may have taken effect, so read the object before you try again").Because(err)
	default:
		return fault.New(fault.OpFailed, "the operation failed; see the log of the service for request id %s", x.call.RequestID).Because(err)
	}
}

func errorBody(x *exchange, f *fault.Error, e routes.FaultResponse) *schema.Error {
	body := &schema.Error{Code: string(f.Code), Detail: f.Detail, Reauth: e.Reauth}
	if e.Status == http.StatusServiceUnavailable {
		body.Retryable, body.Scope = &f.Retryable, string(f.Scope)
	}
	body.Unsupported = x.route.Path == routes.NoRoute || x.route.allow != ""
	return body
}

func (x *exchange) setFaultHeaders(f *fault.Error, e routes.FaultResponse) {
	h := x.w.Header()
	switch e.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", challenge(x, f, e))
	case http.StatusMethodNotAllowed:
		h.Set("Allow", x.route.allow)
	case http.StatusUnsupportedMediaType:
		h.Set("Accept-Encoding", routes.NoEncoding) // RFC 9110 section 12.5.3
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		if after := f.RetryAfter; after > 0 || f.Scope != "" || e.Status == http.StatusTooManyRequests {
			seconds := max(1, (after+time.Second-1)/time.Second)
			h.Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
		}
	}
}

// challenge returns the WWW-Authenticate header. By RFC 6750 section 3 the header has no error attribute if the request
// has no credentials. Challenges about keys follow RFC 9449 section 7.1.
func challenge(x *exchange, f *fault.Error, e routes.FaultResponse) string {
	scheme := `Bearer realm="keyserver"`
	switch word := proofErrors[f.Code]; {
	case word != "":
		return proofScheme + `, error="` + word + `", error_description="` + f.Detail + `"`
	case x.call.proof.Claimed:
		scheme = proofScheme
	}
	if !e.Reauth || len(x.r.Header["Authorization"]) == 0 {
		return scheme
	}
	switch f.Code {
	case fault.SessionExpired, fault.ScopedExpired:
		return scheme + `, error="invalid_token", error_description="the session has expired"`
	case fault.CertificateMismatch: // RFC 8705 section 3
		return scheme + `, error="invalid_token", error_description="the session is bound to another certificate"`
	}
	return scheme + `, error="invalid_token", error_description="the session id is not valid"`
}

func (x *exchange) write(status int, out any) {
	if plain, ok := out.(plainText); ok {
		x.w.Header()["Content-Type"] = []string{plain.mediaType}
		x.send(plain.status, plain.body)
		return
	}
	if _, sent := out.(*pieces); sent {
		return
	}
	if ready, ok := out.(raw); ok {
		x.send(status, ready)
		return
	}
	if plain, ok := out.(schema.Plain); ok {
		x.w.Header()["Content-Type"] = []string{plain.MediaType()}
		x.send(status, *plain.Bytes())
		return
	}
	buf := buffers.Get().(*bytes.Buffer) //nolint:errcheck // the pool holds nothing else
	defer recycle(buf)
	if err := json.MarshalWrite(buf, out); err != nil {
		status = x.writeEncodingError(buf, err)
	}
	buf.WriteByte('\n')
	x.send(status, buf.Bytes())
}

func (x *exchange) send(status int, body []byte) {
	x.answered = true
	if x.api.draining.Err() != nil {
		// Shutdown may miss a connection that was opened when Shutdown began. The header asks the client to send no
		// other request over this connection (HTTP/2: GOAWAY).
		x.w.Header()["Connection"] = []string{"close"}
	}
	x.leavePlace()
	x.holdUnread(int64(len(body)))
	x.w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	x.w.WriteHeader(status)
	_, _ = x.w.Write(body) // the client may have disconnected
	if x.member != nil || x.refused {
		// HTTP/2 sends the end of a response after the handler returns. Without Flush, the place of a request without a
		// session would be free while the response is still in memory.
		_ = http.NewResponseController(x.w).Flush()
	}
}

// answerOverhead is the approximate memory of a request in bytes, in addition to its response.
const answerOverhead = 16 << 10

// holdUnread counts the bytes of a response for the principal until the response is written. It closes the connection
// if the responses that clients have not read exceed the principal's share of bytes.
func (x *exchange) holdUnread(n int64) {
	if x.member != nil || x.refused {
		return
	}
	n += answerOverhead
	if x.api.places.unread.Take(x.payer(), n) != quota.Taken {
		x.code = fault.Overloaded
		panic(http.ErrAbortHandler)
	}
	x.unreadBytes = n
}

// writeEncodingError writes an error body for a response that cannot be encoded as JSON. It returns the
// status, 500.
func (x *exchange) writeEncodingError(buf *bytes.Buffer, err error) int {
	buf.Reset()
	f := x.faultOf(err)
	e := routes.ResponseTo(f.Code)
	x.code = f.Code
	x.report(f, e, err)
	if err := json.MarshalWrite(buf, errorBody(x, f, e)); err != nil {
		buf.WriteString(`{"code":"OP_FAILED","detail":""}`) // encoding fails only if the text is not UTF-8
	}
	return e.Status
}

// logAttrs returns the log attributes that identify a request: its id, the trace and, if they are known, the public id of
// the session and the principal.
func (x *exchange) logAttrs() []slog.Attr {
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs, slog.String("requestId", x.call.RequestID))
	if by := x.call.by; !by.Session.IsZero() {
		attrs = append(attrs, slog.String("session", by.Session.Hex()), slog.String("principal", by.Principal.String()))
	}
	if id := x.span.TraceID(); id != "" {
		attrs = append(attrs, slog.String("traceId", id))
	}
	return attrs
}

// report logs each failure once, with its cause, which no response contains. Refusals concern only the caller, so most
// refusals are logged at debug level; the metrics count them.
func (x *exchange) report(f *fault.Error, e routes.FaultResponse, err error) {
	cause := errors.Unwrap(f)
	level := slog.LevelDebug
	switch {
	case e.Status == http.StatusInternalServerError || e.Status == http.StatusBadGateway:
		level = slog.LevelError
	case e.Status > http.StatusInternalServerError && cause != nil && !errors.Is(err, context.Canceled):
		level = slog.LevelWarn
	case x.release != nil && (f.Code == fault.Overloaded || f.Code == fault.SessionLimit || f.Code == fault.RequestLimit):
		x.api.crowded.Do(func() { level = slog.LevelWarn }) // the log entry names the principal
	}
	if !x.api.Logger.Enabled(x.r.Context(), level) {
		return
	}
	x.api.Logger.LogAttrs(x.r.Context(), level, "request failed",
		append(x.logAttrs(), slog.String("method", method(x.r.Method)), slog.String("route", x.route.Path),
			slog.String("code", string(f.Code)), slog.String("detail", f.Detail), slog.Any("cause", cause))...)
}

// finish ends the request. It runs last in every case, even after a panic.
func (x *exchange) finish() {
	defer x.leave()
	if p := recover(); p != nil {
		x.panicked(p)
	}
	x.span.End(string(x.code))
	took := x.api.Clock().Sub(x.start)
	x.route.measured.observe(method(x.r.Method), x.code, took)
	if x.api.Logger.Enabled(x.r.Context(), slog.LevelDebug) {
		x.api.Logger.LogAttrs(x.r.Context(), slog.LevelDebug, "request",
			append(x.logAttrs(), slog.String("method", method(x.r.Method)), slog.String("route", x.route.Path),
				slog.String("code", string(x.code)), slog.Duration("took", took))...)
	}
}

// panicked responds with 500 and logs the stack. The value of a panic may contain data of the request, so only its type
// is logged.
func (x *exchange) panicked(p any) {
	if p == http.ErrAbortHandler { //nolint:errorlint // a sentinel that net/http compares like this
		x.route.measured.observe(method(x.r.Method), x.code, x.api.Clock().Sub(x.start))
		x.span.End(string(x.code))
		panic(p)
	}
	err, ok := p.(error)
	kind := "not an error"
	if ok {
		var re interface{ RuntimeError() }
		if kind = "an error"; errors.As(err, &re) {
			kind = err.Error() // the text of a runtime error, such as an index out of range
		}
	}
	x.api.Logger.LogAttrs(x.r.Context(), slog.LevelError, "panic",
		append(x.logAttrs(), slog.String("route", x.route.Path),
			slog.String("panic", kind), slog.String("stack", string(debug.Stack())))...)
	x.code = fault.OpFailed
	if x.answered {
		panic(http.ErrAbortHandler) // a partial response must not look complete
	}
	f := fault.New(fault.OpFailed, "the operation failed; see the log of the service for request id %s", x.call.RequestID)
	x.write(http.StatusInternalServerError, errorBody(x, f, routes.ResponseTo(f.Code)))
}
