package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/wire"
)

// Limits of responses, in bytes.
const (
	maxAnswer      = 32 << 20
	maxErrorAnswer = 1 << 20
	maxDetail      = 4 << 10
)

// Limits of the pause between two attempts.
const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// peerUnavailable is the code of a call for which the key server that owns the
// key did not respond.
const peerUnavailable = "PEER_UNAVAILABLE"

// NOT_READY is a normal result of the readiness route, so the call is not retried.
const (
	readinessRoute = "getReadiness"
	notReady       = "NOT_READY"
)

// call is one request, independent of the number of attempts.
type call struct {
	route
	target string // path and query of the request
	body   any    // encoded as JSON; nil sends no body
	// stream returns the body of each attempt; if nil, body is sent. errSpent means that the body cannot be sent again.
	stream func(context.Context) (io.Reader, error)
	// mismatch describes why a response does not belong to this request; nil if
	// that cannot be decided.
	mismatch func(answer any) string
	bind     bool          // opens a session; a proof binds the session to its key
	token    string        // with open: sent instead of the session's token
	over     *http.Client  // with open: the HTTP client of the session; nil: the client's own
	wait     time.Duration // added to the time of an attempt
	header   *http.Header  // receives the header of the response
	to       io.Writer     // receives the response if it is not JSON and may have any length
	// forward is a request of another program, with its body and the receiver of the
	// response. It is nil for the client's own requests.
	forward *forwarding
	// patience is the longest pause that the client accepts from the key server. 0 means maxBackoff.
	patience time.Duration
}

// send attempts the call until it succeeds or fails finally. If the error is the verdict of a verified write, send also
// returns the response.
func send[Out any](ctx context.Context, c *Client, k call) (Out, error) {
	out, err := attempts[Out](ctx, c, k)
	return out, c.finished(k.route, err)
}

func attempts[Out any](ctx context.Context, c *Client, k call) (Out, error) {
	var refused error // of the previous attempt
	renewed, proved := false, false
	for attempt := 0; ; attempt++ {
		var out Out
		held, err := c.authorize(ctx, k)
		if err != nil {
			return out, err
		}
		err = c.try(ctx, k, held, &out)
		if errors.Is(err, errSpent) && refused != nil {
			return out, refused
		}
		refused = err
		if e := asError(err); (e != nil && e.Reauth || errors.Is(err, errRenewed)) && !k.open && !renewed {
			// The session ended early; after a 401, the request had no effect.
			renewed = true
			c.session.drop(held.token)
			attempt--
			continue
		}
		if pause, ok := c.prover.retryable(k, err); ok && !proved {
			proved = true
			attempt--
			if sleep(ctx, pause) != nil {
				return out, err
			}
			continue
		}
		pause, again := c.shouldRetry(k, err, attempt)
		if !again {
			return out, err
		}
		if waitErr := sleep(ctx, pause); waitErr != nil {
			return out, err
		}
	}
}

func (c *Client) authorize(ctx context.Context, k call) (ticket, error) {
	if k.open {
		return ticket{token: k.token, over: k.over}, nil
	}
	return c.session.use(ctx)
}

// shouldRetry reports whether to retry the call, and the pause before the retry.
func (c *Client) shouldRetry(k call, err error, attempt int) (time.Duration, bool) {
	if err == nil || attempt >= c.maxRetries {
		return 0, false
	}
	pause := backoff(attempt)
	var n *NetworkError
	switch e := asError(err); {
	case errors.As(err, &n):
		return pause, (!cancelled(err) || unconnected(err)) && (!n.Sent || k.method == http.MethodGet)
	case e != nil && k.name == readinessRoute && e.Code == notReady:
		return 0, false // that is the result of the call
	case e != nil && k.counts && e.Code == peerUnavailable:
		// The peer may have counted the use without responding, and would count a retry,
		// too. Only the caller knows whether a retry is worth that.
		return 0, false
	case e != nil && e.Retryable:
		// If the key server asks for a longer pause, the caller itself has to wait.
		return max(pause, e.RetryAfter), e.RetryAfter <= cmp.Or(k.patience, maxBackoff)
	default:
		return 0, false
	}
}

// unconnected reports whether a connection could not be made in time. The net package then returns a deadline error, as
// it does if the caller's context ends. An address that is no longer in use, such as that of a deleted Pod, does not
// respond. The caller's context also limits the pause before the next attempt.
func unconnected(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial" && dial.Timeout()
}

// backoff returns a pause that doubles with each attempt. It has jitter, so that callers that failed together do not
// retry together.
func backoff(attempt int) time.Duration {
	full := min(minBackoff<<min(attempt, 16), maxBackoff)
	return full/2 + rand.N(full/2) //nolint:gosec // jitter, not a secret
}

func (c *Client) try(ctx context.Context, k call, held ticket, out any) error {
	if c.trace == nil {
		return c.tryOnce(ctx, k, held, nil, out)
	}
	header := http.Header{}
	ctx, ended := c.trace(ctx, k.name, header)
	err := c.tryOnce(ctx, k, held, header, out)
	ended(err)
	return err
}

// tryOnce sends the call with more headers.
func (c *Client) tryOnce(ctx context.Context, k call, held ticket, more http.Header, out any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout+k.wait)
	defer cancel()
	var connected bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected = true },
	})
	req, err := c.request(ctx, k, held.token)
	if err != nil {
		return err
	}
	maps.Copy(req.Header, more)
	hc := held.over
	if hc == nil {
		hc = c.http
	}
	resp, err := hc.Do(req)
	if err != nil {
		var unsendable *Error
		if errors.As(err, &unsendable) {
			return unsendable
		}
		return &NetworkError{Sent: connected, Err: err}
	}
	defer resp.Body.Close()
	if k.header != nil {
		*k.header = resp.Header
	}
	if k.forward != nil {
		return c.passResponse(k, resp)
	}
	return c.read(k, resp, out)
}

func (c *Client) request(ctx context.Context, k call, token string) (*http.Request, error) {
	body, again, err := k.content(ctx)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, k.method, c.base+k.target, body)
	if err != nil {
		return nil, fmt.Errorf("create the request: %w", err)
	}
	if again != nil {
		req.GetBody = again
	}
	if k.forward != nil {
		k.forward.dress(req)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", c.userAgent)
	if purpose := purposeOf(ctx); purpose != "" {
		req.Header.Set("X-Keyserver-For", purpose)
	}
	if owner := ownerOf(ctx); owner != "" && k.makes {
		req.Header.Set("X-Keyserver-Owner", owner)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if c.prover != nil && (token != "" || k.bind) {
		proof, err := c.prover.prove(k.method, c.known+strings.TrimPrefix(req.URL.String(), c.base), token, c.now())
		if err != nil {
			return nil, err
		}
		req.Header.Set("DPoP", proof)
	}
	return req, nil
}

// content returns the body of one attempt, or nil if there is none. If the body is streamed, the function again creates
// the body once more for the transport. The transport calls again only if the server did not process the request,
// because the connection was about to end (RFC 9113 6.8).
func (k call) content(ctx context.Context) (body io.Reader, again func() (io.ReadCloser, error), err error) {
	stream := k.stream
	switch {
	case k.forward != nil:
		stream = k.forward.body
	case stream == nil && k.body == nil:
		return nil, nil, nil
	case stream == nil:
		b, err := json.Marshal(k.body)
		if err != nil {
			// The encoder's error may quote the value.
			return nil, nil, &Error{Code: "BAD_REQUEST", Detail: "the request cannot be encoded as JSON; text must be valid UTF-8"}
		}
		return bytes.NewReader(b), nil, nil
	}
	body, err = stream(ctx)
	if err != nil || body == nil {
		return nil, nil, err
	}
	return body, func() (io.ReadCloser, error) {
		again, err := stream(ctx)
		if err != nil {
			return nil, fmt.Errorf("the server did not process the request, and %w", err)
		}
		return io.NopCloser(again), nil
	}, nil
}

func (c *Client) read(k call, resp *http.Response, out any) error {
	if resp.StatusCode == http.StatusOK && k.to != nil {
		return copyResponse(k, resp)
	}
	if resp.StatusCode == http.StatusOK {
		b, err := readAll(resp.Body, maxAnswer)
		if err != nil {
			return &NetworkError{Sent: true, Err: err}
		}
		if !understood(resp, b, out) {
			// The decoder's error may quote the response, which may contain a secret.
			// docs/contract.md describes the response.
			return &Error{
				Status: resp.StatusCode, Code: "", RequestID: requestID(resp),
				Detail: fmt.Sprintf("the response to %s %s does not match the API contract", k.method, k.target),
			}
		}
		return unproven(resp, k, out)
	}
	b, err := readAll(resp.Body, maxErrorAnswer)
	if err != nil {
		b = nil // the status is sufficient
	}
	return c.failure(k, resp, b, out)
}

// understood decodes a response. It returns false if the contract does not
// allow the response.
func understood(resp *http.Response, b []byte, out any) bool {
	if plain, ok := out.(schema.Plain); ok {
		*plain.Bytes() = b
		got, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		want, _, _ := mime.ParseMediaType(plain.MediaType())
		return err == nil && got == want // a proxy may send its own page
	}
	if json.Unmarshal(b, out) != nil {
		return false
	}
	if _, verdict := out.(interface{ MissingEvidence() string }); verdict {
		return true // unproven checks what is missing
	}
	return wire.Of(reflect.TypeOf(out).Elem()).IsResponse(b, out)
}

// unproven returns an error if a success lacks the evidence that the write was verified by a second read. A response
// that shows other values than the request belongs to another request.
func unproven(resp *http.Response, k call, out any) error {
	answer, verified := out.(interface{ MissingEvidence() string })
	if !verified {
		return nil
	}
	missing := answer.MissingEvidence()
	if missing == "" && k.mismatch != nil {
		missing = k.mismatch(out)
	}
	if missing != "" {
		return &Error{Status: resp.StatusCode, Code: "NOT_VERIFIED", RequestID: requestID(resp), Detail: missing}
	}
	return nil
}

// failure decodes an error response. If the response is that of a verified write, failure also decodes it into out.
func (c *Client) failure(k call, resp *http.Response, body []byte, out any) *Error {
	e := &Error{Status: resp.StatusCode, RequestID: requestID(resp), RetryAfter: c.retryAfter(resp)}
	var said schema.Error
	if json.Unmarshal(body, &said) == nil && said.Code != "" {
		e.Code, e.Detail = said.Code, clip(said.Detail)
		e.Reauth, e.Scope = said.Reauth, said.Scope
		c.prover.learn(resp, said.Code, c.now())
		e.Retryable = said.Retryable != nil && *said.Retryable
		if resp.StatusCode == http.StatusConflict || resp.StatusCode == http.StatusServiceUnavailable {
			_ = json.Unmarshal(body, out) // a body of another type leaves out empty
		}
	} else {
		e.Detail = fmt.Sprintf("the response to %s %s has status %d and no code", k.method, k.target, resp.StatusCode)
	}
	switch resp.StatusCode {
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		e.unsupported = true
	case http.StatusNotFound:
		// Another implementation may not mark unknown paths. A 404 means the same if it
		// has no code, or if the request named no object.
		e.unsupported = said.Unsupported || e.Code == "" || (!k.named && e.Code == "NOT_FOUND")
	}
	return e
}

func (c *Client) retryAfter(resp *http.Response) time.Duration {
	v := resp.Header.Get("Retry-After")
	if n, err := strconv.Atoi(v); err == nil && n > 0 {
		return time.Duration(min(n, 24*60*60)) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(0, t.Sub(c.now()))
	}
	return 0
}

func requestID(resp *http.Response) string {
	id := resp.Header.Get("X-Request-Id")
	if len(id) > 64 {
		return ""
	}
	return id
}

func readAll(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("the response is longer than %d bytes", limit)
	}
	return b, nil
}

func clip(s string) string {
	if len(s) > maxDetail {
		return s[:maxDetail] + "…"
	}
	return s
}
