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

// Forwarded is a request that somebody else has made. It is sent as it is, under this
// client's session.
type Forwarded struct {
	Route  string // its operationId
	Method string
	Target string // path and query, as they are spelled
	// Header is sent beside what the client sets, which it cannot replace.
	Header http.Header
	// Body is the body, or its beginning: Rest, where it is not nil, has what is behind
	// it, and Length is the length of both, negative where nobody knows. Rest is read
	// once, so that the request is sent again only as long as nothing of it was read;
	// the service is asked to let it come only once it has seen the header.
	Body   []byte
	Rest   io.Reader
	Length int64
	// Open: it needs no session, and is sent without one.
	Open bool
	// Counts: it may count a use of a key, so that it is not sent again after
	// PEER_UNAVAILABLE.
	Counts bool
	// Timeout bounds each attempt, the answer included.
	Timeout time.Duration
	// Patience is the longest time that the service may ask to wait before another
	// attempt; a refusal that asks for more is the answer.
	Patience time.Duration
}

// Forward sends somebody else's request, and hands on what comes back: the answer, or
// the refusal that is left when nothing more is tried, which failure explains. The
// answer's body is open until answer returns. A *LoginError says that there is no
// session to send it under, a *NetworkError that no answer came; what answer returns is
// returned as it is.
func (c *Client) Forward(ctx context.Context, f Forwarded, answer func(resp *http.Response, failure *Error) error) error {
	handOver := &forwarding{Forwarded: f, answer: answer}
	if f.Rest != nil {
		handOver.rest = hand(f.Rest, nil)
		defer handOver.rest.end()
	}
	r := route{name: f.Route, method: f.Method, path: f.Target, open: f.Open, counts: f.Counts}
	err := c.finished(r, c.pass(ctx, call{route: r, target: f.Target, wait: f.Timeout - c.timeout, patience: f.Patience, forward: handOver}))
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

// forwarding is a request of somebody else on its way.
type forwarding struct {
	Forwarded
	rest    *handed // nil where there is none
	answer  func(*http.Response, *Error) error
	refused *http.Response // the last refusal, its body read
}

// body makes the body of the next attempt, nil where there is none.
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
		return nil, nil //nolint:nilnil // no body, and that is no mistake
	}
}

// dress gives the request what it came with.
func (f *forwarding) dress(req *http.Request) {
	maps.Copy(req.Header, f.Header)
	if f.Rest != nil {
		req.ContentLength = f.Length
		req.Header.Set("Expect", "100-continue")
	}
}

// handOver hands an answer on, and keeps a refusal for when nothing more is tried.
func (c *Client) handOver(k call, resp *http.Response) error {
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
