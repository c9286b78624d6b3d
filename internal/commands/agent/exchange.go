package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

const (
	// answerTime is the time for a response in addition to the timeout of its route.
	answerTime = 15 * time.Second
	// attemptsTime limits the time of all attempts of a request together. It is a multiple of the time for one attempt.
	attemptsTime = 2
	// patience is the longest Retry-After pause for which the agent waits. If the key server requests a longer pause, the
	// workload gets the error.
	patience = 2 * time.Second
	// streamHead is the number of bytes of a long body that are kept to send the body again.
	streamHead = 64 << 10
)

// exchange is one request of the workload, with its response.
type exchange struct {
	agent   *Agent
	w       http.ResponseWriter
	r       *http.Request
	start   time.Time
	route   string
	code    string // empty for success
	status  int
	body    *incoming
	written bool
}

// sessionRefused is the error if the key server rejects the agent's session.
type sessionRefused struct{ said *client.Error }

// Error returns the text of the key server's error.
func (s *sessionRefused) Error() string { return s.said.Error() }

// Unwrap returns the key server's error.
func (s *sessionRefused) Unwrap() error { return s.said }

// sessionFailed reports whether the key server rejects the agent's session.
func sessionFailed(e *client.Error) bool {
	return e.Reauth || e.Status == http.StatusUnauthorized && e.Code != "INVALID_CREDENTIALS"
}

// ServeHTTP implements http.Handler.
func (a *Agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A connection keeps the deadline of the previous request. Writers without deadlines, as in tests, return an error,
	// which is ignored.
	_ = http.NewResponseController(w).SetWriteDeadline(in(answerTime))
	if r.URL.Path == livePath || r.URL.Path == readyPath {
		a.health(w, r)
		return
	}
	x := &exchange{agent: a, w: w, r: r, start: a.cfg.Clock(), route: noRoute}
	defer x.finish()
	err := x.handle()
	if err == nil {
		return
	}
	if x.written {
		x.code = noAnswer.Code
		panic(http.ErrAbortHandler) // the connection closes, so the client notices the incomplete response
	}
	x.refuse(err)
}

func (x *exchange) handle() error {
	if err := x.caller(); err != nil {
		return err
	}
	select {
	case x.agent.places <- struct{}{}:
		defer func() { <-x.agent.places }()
	default:
		return refuse(overloaded, fmt.Sprintf("the limit of concurrent requests is reached (--max-requests %d)", x.agent.cfg.MaxRequests)).later(time.Second)
	}
	found, allow, err := x.agent.finder.Find(x.r)
	if err != nil {
		if allow != "" {
			x.w.Header().Set("Allow", allow)
		}
		return err
	}
	x.route = found.Name
	keys, ok := x.agent.allow.Permit(found.Name)
	if !ok {
		return refuse(routeRefused, fmt.Sprintf("the agent does not allow the route %s; name it in a rule of --allow", found.Name))
	}
	attempt := found.Timeout + answerTime
	ctx, cancel := context.WithTimeout(x.r.Context(), attemptsTime*attempt)
	defer cancel()
	rc := http.NewResponseController(x.w)
	_ = rc.SetReadDeadline(in(found.Timeout))
	_ = rc.SetWriteDeadline(in(attemptsTime*attempt + answerTime))
	f, err := x.read(found, keys)
	if err != nil {
		return err
	}
	_ = rc.SetReadDeadline(in(attemptsTime*attempt + answerTime)) // a deadline that passes would end the request
	f.Timeout, f.MaxRetryAfter = attempt, patience
	if !f.WithoutSession {
		if why := x.agent.gate.shut(); why != nil {
			return why
		}
	}
	return x.ended(ctx, f, x.forward(ctx, found, f))
}

// forward sends the request to the key server, in a batch if possible, and forwards the response to the workload.
func (x *exchange) forward(ctx context.Context, found *routes.Found, f client.Forwarded) error {
	sendAlone := func() error { return x.agent.client.Forward(ctx, f, x.forwardResponse) }
	b := x.agent.batchers[found.Name]
	if b == nil || !x.fitsBatch(found, f) {
		return sendAlone()
	}
	result, err := b.do(ctx, f.Body, sendAlone)
	if err != nil || result == nil {
		return err
	}
	return x.writeResult(result)
}

// fitsBatch reports whether the request may be an item of a batch. Its body is copied into the batch, so it must be
// exactly one valid item. Items for keys of peers are not forwarded. Headers of a single request cannot be sent in a
// batch.
func (x *exchange) fitsBatch(found *routes.Found, f client.Forwarded) bool {
	if f.Rest != nil || len(f.Body) > maxItemBytes || len(f.Header) > 0 || x.r.URL.RawQuery != "" {
		return false
	}
	key, err := found.WholeKey(f.Body)
	if err != nil { // the key server returns the error
		return false
	}
	system, _, ok := key.Split()
	return ok && int64(system) == x.agent.system.Load()
}

// writeResult forwards the response to an item of a batch to the workload.
func (x *exchange) writeResult(r *batchResult) error {
	x.code = r.code
	x.copyHeader(r.header)
	x.w.Header().Set("Content-Length", strconv.Itoa(len(r.body)))
	x.writeStatus(r.status)
	_, err := x.w.Write(r.body)
	return err
}

// copyHeader forwards the header of a response.
func (x *exchange) copyHeader(from http.Header) {
	h := x.w.Header()
	for _, name := range answered {
		if v, ok := from[name]; ok {
			h[name] = slices.Clone(v)
		}
	}
}

// writeStatus forwards the status of a response.
func (x *exchange) writeStatus(status int) {
	x.written, x.status = true, status
	x.w.WriteHeader(status)
}

// in returns the deadline that is d from now. It uses the system clock, as connections do.
func in(d time.Duration) time.Time {
	return time.Now().Add(d)
}

// credentials are the headers with a credential.
var credentials = []string{"Authorization", "Proxy-Authorization", "Dpop", "Cookie"}

// caller rejects requests with a credential, which would have no effect. If the listener is not a unix socket, it also
// rejects requests of web pages in a browser of this machine.
func (x *exchange) caller() error {
	for _, name := range credentials {
		if _, sent := x.r.Header[name]; sent {
			return refuse(credentialSent, fmt.Sprintf("the request has a header %s; leave it out, because the agent uses its own session and forwards no other credential", name))
		}
	}
	if x.agent.local {
		return nil
	}
	if _, page := x.r.Header["Origin"]; page || !forLoopback(x.r.Host) {
		return refuse(callerRefused, "the agent serves only programs of its Pod; send no Origin header, and use localhost or a loopback address as Host")
	}
	return nil
}

func forLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// passedOn are the request headers that are forwarded to the key server.
var passedOn = []string{"X-Keyserver-For", "X-Keyserver-Owner", "X-Request-Id"}

// read reads as much of the request as is needed to authorize it and to send it again.
func (x *exchange) read(found *routes.Found, keys Keys) (client.Forwarded, error) {
	f := client.Forwarded{
		Route: found.Name, Method: found.Method, Target: x.r.URL.EscapedPath(), Header: http.Header{},
		Counts: found.Counts, WithoutSession: !found.Session && found.Method == http.MethodGet,
	}
	if x.r.URL.RawQuery != "" {
		f.Target += "?" + x.r.URL.RawQuery
	}
	for _, name := range passedOn {
		if v, ok := x.r.Header[name]; ok {
			f.Header[name] = slices.Clone(v)
		}
	}
	x.body = &incoming{from: http.MaxBytesReader(x.w, x.r.Body, found.BodyLimit), limit: found.BodyLimit}
	if found.Streamed() {
		return x.readStream(f, found, keys)
	}
	var err error
	if f.Body, err = io.ReadAll(x.body); err != nil || keys == nil {
		return f, err
	}
	named, err := found.Keys(f.Body)
	if err != nil {
		return f, err
	}
	return f, keys.check(found.Name, named...)
}

// readStream reads the first part of a body that may be long: up to the key, if the allowed keys are limited, and then
// up to streamHead bytes in total.
func (x *exchange) readStream(f client.Forwarded, found *routes.Found, keys Keys) (client.Forwarded, error) {
	var head []byte
	if keys != nil {
		key, read, err := found.StreamedKey(x.body)
		if err == nil {
			err = keys.check(found.Name, key)
		}
		if err != nil {
			return f, err
		}
		head = read
	}
	n, kept := len(head), streamHead
	if length := x.r.ContentLength; length >= 0 && length < streamHead {
		kept = int(length) + 1 // one more byte, so that ReadFull reaches the end of the body
	}
	head = append(head, make([]byte, max(1, kept-n))...) // one more byte shows whether the body continues
	more, err := io.ReadFull(x.body, head[n:])
	f.Body, f.Length = head[:n+more], x.r.ContentLength
	switch {
	case err == nil:
		f.Rest = x.body
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return f, err
	}
	return f, nil
}

func (k Keys) check(route string, named ...schema.HiddenLink) error {
	if len(named) == 0 {
		return refuse(keyRefused, fmt.Sprintf("the request names no key; the agent allows %s only for the keys of --allow", route))
	}
	for _, key := range named {
		if !k[key] {
			return refuse(keyRefused, fmt.Sprintf("the agent does not allow %s for the key or key lineage %s; name it in a rule of --allow", route, key))
		}
	}
	return nil
}

// incoming is the body of a request. It stores a read error, because the transport that reads it only reports a broken
// connection.
type incoming struct {
	from   io.Reader
	limit  int64
	failed atomic.Pointer[fault.Error]
}

// Read implements io.Reader.
func (i *incoming) Read(p []byte) (int, error) {
	n, err := i.from.Read(p)
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	var large *http.MaxBytesError
	f := fault.New(fault.BadRequest, "body: could not be read completely; send it again")
	switch {
	case errors.As(err, &large):
		f = fault.New(fault.PayloadTooLarge, "body: must have at most %d bytes, the limit of this route", i.limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		f = fault.New(fault.RequestTimeout, "body: did not arrive within the time limit of this route")
	}
	i.failed.Store(f)
	return n, f
}

// answered are the response headers that the workload gets.
var answered = []string{"Content-Type", "Content-Length", "Cache-Control", "X-Content-Type-Options", "X-Request-Id", "Retry-After", "Allow"}

// forwardResponse forwards the key server's response to the workload. It does not forward errors about the agent's
// session, but returns them.
func (x *exchange) forwardResponse(resp *http.Response, failure *client.Error) error {
	if failure != nil {
		if sessionFailed(failure) {
			return &sessionRefused{failure}
		}
		x.code = failure.Code
		x.hurryBody()
	}
	x.copyHeader(resp.Header)
	x.writeStatus(resp.StatusCode)
	if x.r.Method == http.MethodHead { // the agent sent a GET to the key server
		return nil
	}
	_, err := io.Copy(x.w, resp.Body)
	return err
}

// ended returns the error for the workload after a request was forwarded, or nil.
func (x *exchange) ended(ctx context.Context, f client.Forwarded, err error) error {
	broken := x.body.failed.Load()
	switch {
	case err == nil:
		if !f.WithoutSession {
			x.agent.gate.passed()
		}
		return nil
	case broken != nil:
		return broken
	case x.written:
		return err // the workload or the key server may have closed the connection
	case x.r.Context().Err() != nil:
		return fault.New(fault.RequestTimeout, "the workload closed the connection")
	}
	if why := x.agent.note(err); why != nil {
		return why
	}
	var n *client.NetworkError
	var e *client.Error
	switch {
	case errors.As(err, &e):
		return fault.New(fault.BadRequest, "%s", e.Detail)
	case errors.As(err, &n) && (!n.Sent || f.Method == http.MethodGet):
		return refuse(unavailable, "the key server does not respond: "+n.Err.Error()).later(time.Second)
	case errors.As(err, &n), ctx.Err() != nil:
		return refuse(noAnswer, "the key server did not respond, but may have performed the request; check this before you repeat it: "+err.Error())
	default:
		return err
	}
}

func (x *exchange) refuse(err error) {
	var own *refusal
	if !errors.As(err, &own) {
		f := fault.As(err)
		if f == nil {
			f = fault.New(fault.OpFailed, "the request could not be forwarded; see the log of the agent for the reason")
			x.agent.cfg.Logger.Error("a request could not be forwarded", "route", x.route, "error", err.Error())
		}
		own = refusalOf(f)
	}
	x.code, x.status = own.code, own.status
	x.hurryBody()
	own.write(x.w)
}

// hurryBody limits the time for which net/http reads the body before it sends an error response.
func (x *exchange) hurryBody() {
	if x.r.Body != http.NoBody {
		_ = http.NewResponseController(x.w).SetReadDeadline(in(time.Second))
	}
}

// finish counts and logs the request. Errors with a code of the agent are logged at level info, all else at debug.
func (x *exchange) finish() {
	took := x.agent.cfg.Clock().Sub(x.start)
	x.agent.metrics.observe(x.route, x.code, took)
	level := slog.LevelDebug
	if slices.ContainsFunc(Codes, func(c Code) bool { return c.Code == x.code }) {
		level = slog.LevelInfo
	}
	x.agent.cfg.Logger.LogAttrs(x.r.Context(), level, "request", slog.String("route", x.route), slog.Int("status", x.status),
		slog.String("code", x.code), slog.Duration("took", took), slog.String("requestId", x.w.Header().Get("X-Request-Id")))
}
