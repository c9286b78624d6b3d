package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
)

// Time limits of connections to the key server.
const (
	dialTimeout = 4 * time.Second
	// A connection without data is probed, because the Pod of a key server may end without closing the connection.
	pingAfter   = 15 * time.Second
	pingTimeout = 5 * time.Second
	idleConns   = 64
)

// newTransport returns a transport to the key server. It reads the CA file for each connection, because the kubelet may
// replace the file.
func newTransport(server, caFile string) (*http.Transport, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	if _, err := roots(caFile); err != nil {
		return nil, err
	}
	host := u.Hostname()
	return &http.Transport{
		DialContext: (&net.Dialer{Timeout: dialTimeout, KeepAlive: pingAfter}).DialContext,
		DialTLSContext: func(ctx context.Context, network, at string) (net.Conn, error) {
			trusted, err := roots(caFile)
			if err != nil {
				return nil, err
			}
			d := tls.Dialer{
				NetDialer: &net.Dialer{Timeout: dialTimeout, KeepAlive: pingAfter},
				Config:    &tls.Config{RootCAs: trusted, ServerName: host, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12},
			}
			return d.DialContext(ctx, network, at)
		},
		ForceAttemptHTTP2:     true,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		MaxIdleConnsPerHost:   idleConns,
		IdleConnTimeout:       idleTimeout,
		ExpectContinueTimeout: time.Second,
	}, nil
}

// roots reads the certificates of a file. nil means the system's certificates.
func roots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // nil means those of the system
	}
	text, err := readFile(file)
	if err != nil {
		return nil, fmt.Errorf("--ca-file: %w", err)
	}
	pool, err := certtext.Pool(text)
	if err != nil {
		return nil, fmt.Errorf("--ca-file: %s %w", file, err)
	}
	return pool, nil
}
