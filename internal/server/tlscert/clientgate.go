package tlscert

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/ca"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

const (
	// verifyTimeout is the time limit of the database reads of one handshake.
	verifyTimeout = 5 * time.Second
	// sweepRetry is the pause before open connections are checked again if the trusted CAs could not be read.
	sweepRetry = time.Second
)

// Reasons to refuse a client certificate: values of a metric label.
const (
	refusedUntrusted   = "untrusted"   // the chain does not end in a CA that is currently trusted
	refusedDisabled    = "disabled"    // the transport principal of the certificate is disabled
	refusedUnavailable = "unavailable" // the trusted CAs could not be read
)

// ClientGate checks the client certificates of the API listener. A client needs no certificate. If a client sends one,
// the CA of the certificate must currently be trusted. If the certificate has a transport principal, that principal
// must be enabled. When a CA is removed from the trusted CAs, the gate closes open connections with a certificate of
// this CA.
type ClientGate struct {
	store   *sqlstore.Store
	clock   func() time.Time
	logger  *slog.Logger
	refused *prometheus.CounterVec

	// announced counts the changes that may have removed a CA.
	announced atomic.Uint64
	open      sync.Map // net.Conn → *trackedConn
	kick      chan struct{}
}

// trackedConn is an open connection that may have a client certificate.
type trackedConn struct {
	since  uint64 // value of announced before the handshake
	active atomic.Bool
}

// NewClientGate returns a gate that follows changes of the trusted CAs in the store. It registers the metric of refused
// certificates.
func NewClientGate(store *sqlstore.Store, clock func() time.Time, logger *slog.Logger, registry prometheus.Registerer) *ClientGate {
	g := &ClientGate{
		store: store, clock: clock, logger: logger, kick: make(chan struct{}, 1),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keyserver_tls_client_certificates_refused_total", Help: "TLS handshakes of the API listener that failed because of the client certificate.",
		}, []string{"reason"}),
	}
	registry.MustRegister(g.refused)
	store.OnChange(g.changed)
	return g
}

// VerifyConnection implements tls.Config.VerifyConnection. It returns an error if the certificate is refused.
func (g *ClientGate) VerifyConnection(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), verifyTimeout)
	defer cancel()
	reason, err := g.verdict(ctx, s.PeerCertificates)
	if err != nil {
		g.refused.WithLabelValues(reason).Inc()
	}
	return err
}

func (g *ClientGate) verdict(ctx context.Context, chain []*x509.Certificate) (reason string, err error) {
	roots, err := g.roots(ctx)
	if err != nil {
		return refusedUnavailable, err
	}
	if err := g.trusted(roots, chain); err != nil {
		return refusedUntrusted, err
	}
	stored, err := g.store.Certificate(ctx, keyserver.DigestOf(chain[0].Raw))
	switch {
	case errors.Is(err, sqlstore.ErrNotFound), err == nil && stored.Principal.IsZero():
		return "", nil // a certificate without a principal opens no session and does not affect other logins
	case err != nil:
		return refusedUnavailable, err
	}
	p, err := g.store.Principal(ctx, stored.Principal)
	switch {
	case err != nil:
		return refusedUnavailable, err
	case p.Flags.Disabled():
		return refusedDisabled, fmt.Errorf("the transport principal %s is disabled", p.ID)
	}
	return "", nil
}

// roots returns the CAs that are currently trusted: the trusted CAs in the store and this key server's own CAs.
func (g *ClientGate) roots(ctx context.Context) (*x509.CertPool, error) {
	issuers, err := ca.Issuers(ctx, g.store)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	for _, ca := range issuers {
		roots.AddCert(ca)
	}
	return roots, nil
}

func (g *ClientGate) trusted(roots *x509.CertPool, chain []*x509.Certificate) error {
	_, err := pki.VerifyClient(chain[0], chain[1:], roots, g.clock())
	return err
}

// Track implements http.Server.ConnState. It stores the open connections, so that sweep can check their client
// certificates. From the first request on, it stores only connections with a client certificate. It does not read the
// TLS state of a connection during the handshake, because that would wait for the client.
func (g *ClientGate) Track(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		g.open.Store(conn, &trackedConn{since: g.announced.Load()})
	case http.StateActive:
		g.arrived(conn)
	case http.StateClosed, http.StateHijacked:
		g.open.Delete(conn)
	case http.StateIdle:
	}
}

// arrived makes a connection visible to sweep at its first request. If a change of the CAs was announced during the
// handshake, it requests another sweep. No change is missed: arrived sets the field active, then reads the counter
// announced; changed increments announced, then sweep reads active.
func (g *ClientGate) arrived(conn net.Conn) {
	held, ok := g.open.Load(conn)
	if !ok {
		return
	}
	v, ok := held.(*trackedConn)
	if !ok || v.active.Load() {
		return
	}
	if t, ok := conn.(*tls.Conn); !ok || len(t.ConnectionState().PeerCertificates) == 0 {
		g.open.Delete(conn)
		return
	}
	v.active.Store(true)
	if g.announced.Load() != v.since {
		g.ask()
	}
}

// changed starts a check of the open connections if a CA may have been removed. A nil slice means that changes may have
// been missed.
func (g *ClientGate) changed(changes []keyserver.Change) {
	if keyserver.AnyWanted(changes, func(c keyserver.Change) bool {
		return (c.Kind == keyserver.ChangeTrustedCA || c.Kind == keyserver.ChangeAuthority) && c.Action == keyserver.Deleted
	}) {
		g.announced.Add(1)
		g.ask()
	}
}

func (g *ClientGate) ask() {
	select {
	case g.kick <- struct{}{}:
	default: // a check is pending already
	}
}

// Run waits for changes of the CAs and closes connections whose CA is no longer trusted, until ctx ends.
func (g *ClientGate) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.kick:
		}
		for g.sweep(ctx) != nil {
			select {
			case <-ctx.Done():
				return
			case <-time.After(sweepRetry):
			}
		}
	}
}

// sweep closes the connections whose certificate is no longer trusted. Connections of a disabled principal stay open:
// their requests get a response with an error code, which is clearer than a closed connection.
func (g *ClientGate) sweep(ctx context.Context) error {
	roots, err := g.roots(ctx)
	if err != nil {
		if ctx.Err() == nil {
			g.logger.Warn("cannot check the client connections against the trusted CAs; retrying", "error", err)
		}
		return err
	}
	g.open.Range(func(key, held any) bool {
		conn, ok := key.(*tls.Conn)
		if v, known := held.(*trackedConn); !ok || !known || !v.active.Load() {
			return true
		}
		if err := g.trusted(roots, conn.ConnectionState().PeerCertificates); err != nil {
			g.logger.Info("closing a connection because the CA of its client certificate is no longer trusted", "remote", conn.RemoteAddr().String(), "cause", err)
			_ = conn.NetConn().Close() // without a TLS alert, because sending an alert could block
		}
		return true
	})
	return nil
}
