package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/dpop"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/server/listener"
	"github.com/keyserver-operator/keyserver-operator/internal/server/tlscert"
)

// Values of --tls-min-version.
const (
	TLS12 = "1.2"
	TLS13 = "1.3"
)

// tlsVersions maps the values of --tls-min-version to the constants of crypto/tls.
var tlsVersions = map[string]uint16{TLS12: tls.VersionTLS12, TLS13: tls.VersionTLS13}

// modernSuites contains the TLS 1.2 cipher suites with forward secrecy and authenticated encryption. TLS 1.3 has only
// such suites.
var modernSuites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

func (c *Config) validateTLS() error {
	if _, ok := tlsVersions[c.TLSMinVersion]; !ok {
		return fmt.Errorf("--tls-min-version is %q; it must be %s or %s", c.TLSMinVersion, TLS12, TLS13)
	}
	return nil
}

// apiTLS returns the TLS configuration of the API listener. It requests a client certificate, but does not require one.
// gate checks the certificate.
func (s *Server) apiTLS(gate *tlscert.ClientGate, delayed *handshakes) *tls.Config {
	return &tls.Config{
		MinVersion:         tlsVersions[s.cfg.TLSMinVersion],
		CipherSuites:       modernSuites,
		GetCertificate:     s.leaf.api,
		GetConfigForClient: delayed.await,
		ClientAuth:         tls.RequestClientCert,
		VerifyConnection:   gate.VerifyConnection,
		NextProtos:         []string{"h2", "http/1.1"},
		Time:               s.cfg.Clock,
		// With a session ticket, a client could resume an authenticated TLS session without a new proof that it has the
		// private key.
		SessionTicketsDisabled: true,
	}
}

// site returns the origins that a DPoP proof may name: --external-url if it is set, otherwise the names in the current
// certificate of the API. For plain HTTP, these are the loopback names.
func (s *Server) site() session.Site {
	show := s.leaf.api
	_, port, _ := net.SplitHostPort(s.listeners.api.Addr().String()) // the listener's own address is always valid
	switch {
	case s.cfg.ExternalURL != "":
		return dpop.At(s.cfg.ExternalURL)
	case show == nil:
		return dpop.OnLoopback(port)
	}
	return dpop.ByCertificate(port, func() *x509.Certificate {
		pair, err := show(nil)
		if err != nil {
			return &x509.Certificate{} // a certificate without names
		}
		return pair.Leaf
	})
}

// maxStreams is the maximum number of concurrent requests on one HTTP/2 connection.
const maxStreams = 128

// serveAPI serves the API on its listener. It uses TLS if the API has a certificate.
func (s *Server) serveAPI(bounded *boundedListener, handler http.Handler) error {
	gate := tlscert.NewClientGate(s.store, s.cfg.Clock, s.cfg.Logger, s.registry)
	var l net.Listener = bounded
	scheme, srv := "http", &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, ConnContext: withHeld,
	}
	if s.leaf.api != nil {
		scheme, srv.ConnState = "https", func(conn net.Conn, state http.ConnState) {
			gate.Track(listener.Unguarded(conn), state)
		}
		if err := listener.NewResetGuard(bounded.closed.WithLabelValues(closedResets), s.cfg.Logger).Configure(srv, maxStreams, idleTimeout); err != nil {
			return err
		}
		l = tls.NewListener(l, s.apiTLS(gate, bounded.handshakes))
		s.background(gate.Run)
	}
	s.address, s.url = l.Addr().String(), s.cfg.ExternalURL
	if s.url == "" {
		s.url = scheme + "://" + reachable(l.Addr())
	}
	s.serve(l, srv)
	return nil
}
