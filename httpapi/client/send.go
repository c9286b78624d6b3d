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

	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/wire"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// Bounds on what is read from a service.
const (
	maxAnswer      = 32 << 20
	maxErrorAnswer = 1 << 20
	maxDetail      = 4 << 10
)

// Bounds of the wait between two attempts.
const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// peerUnavailable is the code of a call that the key server that owns the key
// did not answer.
const peerUnavailable = "PEER_UNAVAILABLE"

// That a service is not ready is an answer to who asks whether it is.
const (
	readinessRoute = "getReadiness"
	notReady       = "NOT_READY"
)

// call is one request, independent of how often it is tried.
type call struct {
	route
	target string // the path that is asked, and the query
	body   any    // encoded as JSON; nil sends none
	// stream makes the body anew for each attempt; nil means body. errSpent
	// says that there is none to send again.
	stream func(context.Context) (io.Reader, error)
	// unlike says how an answer is not one to this request; nil where nobody can tell.
	unlike func(answer any) string
	bind   bool          // opens a session, which a proof binds to its key
	token  string        // sent instead of the session's, with open
	over   *http.Client  // with open: what carries the session; nil: the client's own
	wait   time.Duration // added to the time of an attempt
	header *http.Header  // receives the answer's header
	to     io.Writer     // receives the answer, where it is no JSON and may be of any length
	// forward is what somebody else has made, with its body and who takes the answer;
	// nil where the request is the client's own.
	forward *forwarding
	// patience is the longest pause that the service may ask for; 0: maxBackoff.
	patience time.Duration
}

// send tries the call until it is answered for good. The answer is filled also
// where the error is the verdict of a verified write.
func send[Out any](ctx context.Context, c *Client, k call) (Out, error) {
	out, err := attempts[Out](ctx, c, k)
	return out, c.finished(k.route, err)
}

func attempts[Out any](ctx context.Context, c *Client, k call) (Out, error) {
	var refused error // of the attempt before
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
			// The session ended early; a 401 says that nothing was done.
			renewed = true
			c.session.drop(held.token)
			attempt--
			continue
		}
		if pause, ok := c.prover.anew(k, err); ok && !proved {
			proved = true
			attempt--
			if sleep(ctx, pause) != nil {
				return out, err
			}
			continue
		}
		pause, again := c.again(k, err, attempt)
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

// again decides whether to try once more and after how long.
func (c *Client) again(k call, err error, attempt int) (time.Duration, bool) {
	if err == nil || attempt >= c.maxRetries {
		return 0, false
	}
	pause := backoff(attempt)
	var n *NetworkError
	switch e := asError(err); {
	case errors.As(err, &n):
		return pause, (!cancelled(err) || unconnected(err)) && (!n.Sent || k.method == http.MethodGet)
	case e != nil && k.name == readinessRoute && e.Code == notReady:
		return 0, false // which is what was asked for
	case e != nil && k.counts && e.Code == peerUnavailable:
		// The peer may have counted the use of the call that it did not answer,
		// and would count another one: whether that is worth it, the caller knows.
		return 0, false
	case e != nil && e.Retryable:
		// A ceiling that lasts longer than this is the caller's to wait for.
		return max(pause, e.RetryAfter), e.RetryAfter <= cmp.Or(k.patience, maxBackoff)
	default:
		return 0, false
	}
}

// unconnected reports whether no connection was made in time, which the net package
// spells as a deadline, too. Nothing answers at an address that nobody has any more, such
// as that of a Pod whose place another has taken; whether the caller still waits, the
// pause before the next attempt tells.
func unconnected(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial" && dial.Timeout()
}

// backoff doubles from attempt to attempt, with jitter so that callers that
// failed together do not come back together.
func backoff(attempt int) time.Duration {
	full := min(minBackoff<<min(attempt, 16), maxBackoff)
	return full/2 + rand.N(full/2) //nolint:gosec // jitter, not a secret
}

// try sends the call once.
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

// tryOnce sends the call with more of a header.
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
		return c.handOver(k, resp)
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
		return nil, fmt.Errorf("make the request: %w", err)
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

// content is the body of one attempt, nil where there is none. Where it is streamed, again
// makes it anew for the transport, which asks for that only where the server did not take
// the request at all: the connection was about to end (RFC 9113 6.8).
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
			// The encoder's words may quote the value.
			return nil, nil, &Error{Code: "BAD_REQUEST", Detail: "the request cannot be spelled as JSON: text must be valid UTF-8"}
		}
		return bytes.NewReader(b), nil, nil
	}
	body, err = stream(ctx)
	if err != nil || body == nil {
		return nil, nil, err
	}
	return body, func() (io.ReadCloser, error) {
		anew, err := stream(ctx)
		if err != nil {
			return nil, fmt.Errorf("the server did not take the request, and %w", err)
		}
		return io.NopCloser(anew), nil
	}, nil
}

func (c *Client) read(k call, resp *http.Response, out any) error {
	if resp.StatusCode == http.StatusOK && k.to != nil {
		return handOn(k, resp)
	}
	if resp.StatusCode == http.StatusOK {
		b, err := readAll(resp.Body, maxAnswer)
		if err != nil {
			return &NetworkError{Sent: true, Err: err}
		}
		if !understood(resp, b, out) {
			// The decoder's words may quote the answer, which may hold a secret. What it
			// should have been is in docs/contract.md.
			return &Error{
				Status: resp.StatusCode, Code: "", RequestID: requestID(resp),
				Detail: fmt.Sprintf("the answer to %s %s is not what the contract says", k.method, k.target),
			}
		}
		return unproven(resp, k, out)
	}
	b, err := readAll(resp.Body, maxErrorAnswer)
	if err != nil {
		b = nil // the status says enough
	}
	return c.failure(k, resp, b, out)
}

// understood reads an answer, where it is what the contract says.
func understood(resp *http.Response, b []byte, out any) bool {
	if plain, ok := out.(schema.Plain); ok {
		*plain.Bytes() = b
		got, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		want, _, _ := mime.ParseMediaType(plain.MediaType())
		return err == nil && got == want // a proxy may answer a page of its own
	}
	if json.Unmarshal(b, out) != nil {
		return false
	}
	if _, verdict := out.(interface{ Unproven() string }); verdict {
		return true // which says itself what is missing
	}
	return wire.Of(reflect.TypeOf(out).Elem()).Answers(b, out)
}

// unproven is a success that does not show what it rests on, nil where it does.
// A write that nobody has read back is not one that was verified, and neither is one
// whose answer shows something else than what was asked for: it is of another request.
func unproven(resp *http.Response, k call, out any) error {
	answer, verified := out.(interface{ Unproven() string })
	if !verified {
		return nil
	}
	missing := answer.Unproven()
	if missing == "" && k.unlike != nil {
		missing = k.unlike(out)
	}
	if missing != "" {
		return &Error{Status: resp.StatusCode, Code: "NOT_VERIFIED", RequestID: requestID(resp), Detail: missing}
	}
	return nil
}

// failure reads a refusal, and the verdict's shape where there is one.
func (c *Client) failure(k call, resp *http.Response, body []byte, out any) *Error {
	e := &Error{Status: resp.StatusCode, RequestID: requestID(resp), RetryAfter: c.retryAfter(resp)}
	var said schema.Error
	if json.Unmarshal(body, &said) == nil && said.Code != "" {
		e.Code, e.Detail = said.Code, clip(said.Detail)
		e.Reauth, e.Scope = said.Reauth, said.Scope
		c.prover.learn(resp, said.Code, c.now())
		e.Retryable = said.Retryable != nil && *said.Retryable
		if resp.StatusCode == http.StatusConflict || resp.StatusCode == http.StatusServiceUnavailable {
			_ = json.Unmarshal(body, out) // a body without the shape leaves out empty
		}
	} else {
		e.Detail = fmt.Sprintf("the answer to %s %s has status %d and no code", k.method, k.target, resp.StatusCode)
	}
	switch resp.StatusCode {
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		e.unsupported = true
	case http.StatusNotFound:
		// A service of another make may not mark its unknown paths; a 404
		// without a code, or where no object was named, says the same.
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
		return nil, fmt.Errorf("the answer is longer than %d bytes", limit)
	}
	return b, nil
}

func clip(s string) string {
	if len(s) > maxDetail {
		return s[:maxDetail] + "…"
	}
	return s
}
