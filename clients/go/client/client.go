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

// Options configure a Client.
type Options struct {
	// BaseURL is the address of the key server without /api, for instance "https://keys.example:8443". Plain http is
	// allowed only for loopback addresses, because it would send passwords and session ids unencrypted.
	BaseURL string
	// RootCAs verifies the key server's certificate. If it is nil, the roots of the system do.
	RootCAs *x509.CertPool
	// HTTPClient replaces the transport. RootCAs must then be nil. The client never follows
	// redirects, even if HTTPClient does.
	HTTPClient *http.Client
	// Credentials open sessions. Without them only calls that need no session work.
	Credentials Credentials
	// ProofKey binds each session to this key (DPoP, RFC 9449): a stolen session id is useless without the key. The key
	// is ECDSA on P-256 or P-384, Ed25519, or RSA. If it is nil, sessions are not bound to a key.
	ProofKey crypto.Signer
	// ProofURL is the key server's own URL (serve --external-url), which proofs contain. The default is BaseURL.
	ProofURL  string
	UserAgent string
	// MaxRetries is the maximum number of retries of a call: 3 if it is 0, none if it is negative.
	MaxRetries int
	// Timeout is the time limit of each attempt, 30 s if it is 0. A long poll adds its wait.
	Timeout time.Duration
	// Observe is called after each call with the operationId of its route and its error. A
	// login that a call causes is part of the call. It is optional.
	Observe func(route string, err error)
	// Trace is called before each attempt with the operationId of the route. Headers that
	// it sets are sent. ended is called with the error of the attempt. It is optional.
	Trace func(ctx context.Context, route string, header http.Header) (_ context.Context, ended func(error))
	// Now is the clock, time.Now if nil.
	Now func() time.Time
}

// Client calls one service in one session. It is safe for concurrent use.
type Client struct {
	base       string
	known      string       // the key server's own URL, for proofs
	http       *http.Client // without a session, and for sessions that are not bound to a certificate
	session    *session
	prover     *prover // nil if sessions are not bound to a key
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
	// dialTimeout gives TCP time for two retransmissions. After dialTimeout, the client dials again, and may reach
	// another address.
	dialTimeout = 4 * time.Second
	// If a connection receives nothing for the time silence, the client sends a ping. It closes the connection if no
	// data arrives within answerTime after the ping. Otherwise, calls would wait until the kernel stops its
	// retransmissions.
	silence    = 5 * time.Second
	answerTime = 5 * time.Second
)

// New returns a client. It sends no request.
func New(o Options) (*Client, error) {
	base, err := baseURL(o.BaseURL)
	if err != nil {
		return nil, err
	}
	hc, err := httpClient(o)
	if err != nil {
		return nil, err
	}
	if err := checkClientCertificate(o); err != nil {
		return nil, err
	}
	p, err := newProver(o.ProofKey)
	if err != nil {
		return nil, err
	}
	known := base
	if o.ProofURL != "" {
		if known, err = baseURL(o.ProofURL); err != nil {
			return nil, fmt.Errorf("external URL for proofs: %w", err)
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

// Format prints only the address, because the client, and each copy of it,
// contains a session id.
func (c Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "client of "+c.base) }

// CloseIdleConnections closes connections that are kept open for later calls.
func (c *Client) CloseIdleConnections() {
	c.http.CloseIdleConnections()
	c.session.closeIdleConnections()
}

func baseURL(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil {
		return "", errors.New("the base URL is not a valid URL")
	}
	switch {
	case u.User != nil:
		return "", errors.New("the base URL must not contain credentials; set Options.Credentials")
	case u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("the base URL %q must be scheme, host and optional path", s)
	case u.Scheme == "https":
	case u.Scheme == "http" && loopback(u.Hostname()):
	case u.Scheme == "http":
		return "", fmt.Errorf("the base URL %q would send credentials without encryption; use https", s)
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
	// A redirect would send the session id to its target.
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
