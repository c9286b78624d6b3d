package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"time"
)

// Forwarded is a request of another program. The client sends it unchanged in its own session.
type Forwarded struct {
	Route  string // its operationId
	Method string
	Target string // path and query, unchanged
	// Header is sent in addition to the headers of the client, and cannot replace them.
	Header http.Header
	// Body is the body, or its beginning. If Rest is not nil, Rest continues the body. Length is then the length of both
	// together, or negative if unknown. Rest is read once, so the request is retried only as long as none of Rest was
	// read. The request therefore asks the key server to accept the header before Rest is sent.
	Body   []byte
	Rest   io.Reader
	Length int64
	// WithoutSession: the request needs no session and is sent without one.
	WithoutSession bool
	// Counts: the request may count a use of a key, so it is not retried after
	// PEER_UNAVAILABLE.
	Counts bool
	// Timeout is the time limit of each attempt, including the response.
	Timeout time.Duration
	// MaxRetryAfter is the longest Retry-After for which the client waits. If Retry-After is longer, the refusal is the
	// result.
	MaxRetryAfter time.Duration
}

// Forward sends a request of another program and calls the function answer with the response. If all attempts fail,
// answer gets the last refusal and the error that describes it. The body of the response is open until answer returns.
// Forward returns a *LoginError if it has no session, a *NetworkError if there was no response, and otherwise the error
// of answer.
func (c *Client) Forward(ctx context.Context, f Forwarded, answer func(resp *http.Response, failure *Error) error) error {
	handOver := &forwarding{Forwarded: f, answer: answer}
	if f.Rest != nil {
		handOver.rest = hand(f.Rest, nil)
		defer handOver.rest.end()
	}
	r := route{name: f.Route, method: f.Method, path: f.Target, open: f.WithoutSession, counts: f.Counts}
	err := c.finished(r, c.pass(ctx, call{route: r, target: f.Target, wait: f.Timeout - c.timeout, patience: f.MaxRetryAfter, forward: handOver}))
	var noSession *LoginError
	if e := asError(err); e != nil && !errors.As(err, &noSession) && handOver.refused != nil {
		return answer(handOver.refused, e)
	}
	return err
}

func (c *Client) pass(ctx context.Context, k call) error {
	_, err := attempts[struct{}](ctx, c, k)
	return err
}

// forwarding is the state of a forwarded request.
type forwarding struct {
	Forwarded
	rest    *retryReader // of Rest; nil without Rest
	answer  func(*http.Response, *Error) error
	refused *http.Response // the last refusal; its body is already read
}

// body returns the body of the next attempt, or nil if there is none.
func (f *forwarding) body(ctx context.Context) (io.Reader, error) {
	switch {
	case f.rest != nil:
		rest, err := f.rest.next(ctx)
		if err != nil {
			return nil, err
		}
		return io.MultiReader(bytes.NewReader(f.Body), rest), nil
	case len(f.Body) > 0:
		return bytes.NewReader(f.Body), nil
	default:
		return nil, nil //nolint:nilnil // no body, and no error
	}
}

// dress sets the headers and the length of the forwarded request.
func (f *forwarding) dress(req *http.Request) {
	maps.Copy(req.Header, f.Header)
	if f.Rest != nil {
		req.ContentLength = f.Length
		req.Header.Set("Expect", "100-continue")
	}
}

// passResponse passes a success to the function answer. It stores a refusal, because the refusal may be the last response.
func (c *Client) passResponse(k call, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK { // docs/contract.md 1.7: no other status is a success
		return k.forward.answer(resp, nil)
	}
	b, err := readAll(resp.Body, maxErrorAnswer)
	if err != nil {
		return &NetworkError{Sent: true, Err: err}
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	k.forward.refused = resp
	return c.failure(k, resp, b, nil)
}
