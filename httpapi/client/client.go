package client

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Options say which service to speak to, and how.
type Options struct {
	// BaseURL is the address of the service without /api, for instance
	// "https://keys.example:8443". Plain http is taken for loopback only: a
	// password or session id would travel in the clear.
	BaseURL string
	// RootCAs checks the service's certificate; nil means the system's roots.
	RootCAs *x509.CertPool
	// HTTPClient replaces the transport. RootCAs must then be nil. Redirects
	// are never followed, whatever it says.
	HTTPClient *http.Client
	// Credentials open sessions. Without them only calls that need no session work.
	Credentials Credentials
	// ProofKey binds each session to itself (DPoP, RFC 9449): whoever gets hold
	// of the session id can do nothing without the key. ECDSA on P-256 or P-384,
	// Ed25519 or RSA; nil binds none.
	ProofKey crypto.Signer
	// ProofURL is the URL by which the service knows itself (serve --external-url),
	// for which proofs are made; empty where that is BaseURL.
	ProofURL  string
	UserAgent string
	// MaxRetries is how often a call is tried again, 3 when zero; negative never.
	MaxRetries int
	// Timeout bounds each attempt, 30 s when zero. A long poll adds its wait.
	Timeout time.Duration
	// Observe is told of each call that has ended: the operationId of its route,
	// and its error. A login that a call leads to is a part of it. nil: nobody is.
	Observe func(route string, err error)
	// Trace is told before each attempt at a call, by the operationId of its route. What it
	// puts into the header is sent, and what it answers is told how the attempt ended; nil:
	// nobody is told.
	Trace func(ctx context.Context, route string, header http.Header) (_ context.Context, ended func(error))
	// Now is the clock, time.Now when nil.
	Now func() time.Time
}

// Client speaks to one service with one session. It is safe for concurrent use.
type Client struct {
	base       string
	known      string       // by which the service knows itself
	http       *http.Client // without a session, and for those that are bound to no certificate
	session    *session
	prover     *prover // nil where sessions are bound to no key
	userAgent  string
	maxRetries int
	timeout    time.Duration
	observe    func(route string, err error)
	trace      func(ctx context.Context, route string, header http.Header) (context.Context, func(error))
	now        func() time.Time
}

const (
	defaultRetries = 3
	defaultTimeout = 30 * time.Second
	idleConns      = 32
	// dialTimeout is two more attempts of TCP behind the first: an address that is silent
	// for longer is tried anew, and may be another one then.
	dialTimeout = 4 * time.Second
	// A connection on which nothing has come for silence is asked whether there is anybody,
	// and given up when nothing comes for answerTime. Calls would wait on it otherwise, one
	// after the other, for as long as the kernel repeats what it sent.
	silence    = 5 * time.Second
	answerTime = 5 * time.Second
)

// New makes a client. It speaks to nobody yet.
func New(o Options) (*Client, error) {
	base, err := baseURL(o.BaseURL)
	if err != nil {
		return nil, err
	}
	hc, err := httpClient(o)
	if err != nil {
		return nil, err
	}
	if err := presentable(o); err != nil {
		return nil, err
	}
	p, err := newProver(o.ProofKey)
	if err != nil {
		return nil, err
	}
	known := base
	if o.ProofURL != "" {
		if known, err = baseURL(o.ProofURL); err != nil {
			return nil, fmt.Errorf("for proofs: %w", err)
		}
	}
	c := &Client{
		base: base, known: known, http: hc, prover: p, userAgent: o.UserAgent,
		maxRetries: o.MaxRetries, timeout: o.Timeout, observe: o.Observe, trace: o.Trace, now: o.Now,
	}
	if c.userAgent == "" {
		c.userAgent = "keyserver-operator-client"
	}
	if c.maxRetries == 0 {
		c.maxRetries = defaultRetries
	}
	if c.timeout <= 0 {
		c.timeout = defaultTimeout
	}
	if c.now == nil {
		c.now = time.Now //nolint:forbidigo // the default of the injected clock
	}
	c.session = &session{credentials: o.Credentials, now: c.now, open: c.login}
	return c, nil
}

// Format prints the address only: the client holds a session id, and so does
// a copy of it.
func (c Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "client of "+c.base) }

// CloseIdleConnections closes what is kept open for the next call.
func (c *Client) CloseIdleConnections() {
	c.http.CloseIdleConnections()
	c.session.closeIdleConnections()
}

func baseURL(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil {
		return "", errors.New("the base URL does not parse")
	}
	switch {
	case u.User != nil:
		return "", errors.New("the base URL must not hold credentials; set Options.Credentials")
	case u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("the base URL %q must be scheme, host and optional path", s)
	case u.Scheme == "https":
	case u.Scheme == "http" && loopback(u.Hostname()):
	case u.Scheme == "http":
		return "", fmt.Errorf("the base URL %q would send credentials in the clear; use https", s)
	default:
		return "", fmt.Errorf("the base URL %q must begin with https", s)
	}
	return strings.TrimRight(u.String(), "/"), nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || (ip != nil && ip.IsLoopback())
}

func httpClient(o Options) (*http.Client, error) {
	if o.HTTPClient != nil && o.RootCAs != nil {
		return nil, errors.New("set HTTPClient or RootCAs, not both")
	}
	var c http.Client
	if o.HTTPClient != nil {
		c = *o.HTTPClient
	} else {
		c.Transport = &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
			TLSClientConfig:       &tls.Config{RootCAs: o.RootCAs, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:   10 * time.Second,
			ForceAttemptHTTP2:     true,
			HTTP2:                 &http.HTTP2Config{SendPingTimeout: silence, PingTimeout: answerTime},
			MaxIdleConnsPerHost:   idleConns,
			IdleConnTimeout:       90 * time.Second,
			ExpectContinueTimeout: time.Second,
		}
	}
	// A redirect would carry the session id to wherever it points.
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.Jar = nil
	return &c, nil
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
