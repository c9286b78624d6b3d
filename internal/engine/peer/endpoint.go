package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/credentials"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Limits of connections.
const (
	handshakeTimeout = dialTimeout // for both sides
	// recheckEvery is the interval of checks of the open connections while the registry does not change. Certificates
	// may expire in that time.
	recheckEvery = time.Minute
	// recheckSoon is the delay until the next check if the registry could not be read.
	recheckSoon = time.Second
	// maxConnections is the maximum number of connections of one peer: the pools of its replicas, and further pools
	// during a change of records.
	maxConnections = 32
	// Rate limit of log lines about refused connections.
	complainEvery    = 10 * time.Second
	complaintsAtOnce = 10
)

// alpn is the protocol that gRPC negotiates.
const alpn = "h2"

// endpoint makes and watches the TLS connections of a client or a server. It checks each handshake against the records
// of peers and the trusted CAs. It closes a connection that they no longer permit.
type endpoint struct {
	registry    Registry
	certificate func() *tls.Certificate
	usage       x509.ExtKeyUsage // that the certificate of the other side must permit
	clock       func() time.Time
	logger      *slog.Logger
	complaints  *rate.Limiter // limits log lines, because any client can connect
	afterCheck  func(trust)   // called after each check of the open connections

	mu   sync.Mutex
	open map[*conn]struct{}
	// content is the content of the registry at version known. reading is locked during a read. The registry is read only
	// once for each change, because any client can cause a read.
	reading sync.Mutex
	known   uint64
	content trust
	version atomic.Uint64 // number of changes of the registry, plus 1
	// announced is the number of changes of the registry that may exclude a peer. settled is announced at the last
	// check of the open connections.
	announced, settled atomic.Uint64
	settling           sync.Mutex

	learnQueue chan peerChain

	kick chan struct{}
	stop context.CancelFunc
	done chan struct{}
}

func newEndpoint(r Registry, own func() *tls.Certificate, usage x509.ExtKeyUsage, clock func() time.Time, logger *slog.Logger, told func(trust)) *endpoint {
	ctx, stop := context.WithCancel(context.Background())
	d := &endpoint{
		registry: r, certificate: own, usage: usage, clock: clock, logger: logger, complaints: rate.NewLimiter(rate.Every(complainEvery), complaintsAtOnce), afterCheck: told,
		open: map[*conn]struct{}{}, learnQueue: make(chan peerChain, maxQueuedChains), kick: make(chan struct{}, 1), stop: stop, done: make(chan struct{}),
	}
	d.version.Store(1)
	go d.watch(ctx)
	return d
}

// close stops the checks of the open connections. It does not close connections.
func (d *endpoint) close() {
	d.stop()
	<-d.done
}

// changed requests a check of the open connections if a change may exclude one of them. It never blocks.
func (d *endpoint) changed(changes []keyserver.Change) {
	if ofRegistry(changes) {
		d.version.Add(1)
	}
	if !mayShutOut(changes) {
		return
	}
	d.announced.Add(1)
	select {
	case d.kick <- struct{}{}:
	default: // a check is already requested
	}
}

// ofRegistry reports whether one of the changes may concern the registry.
func ofRegistry(changes []keyserver.Change) bool {
	return keyserver.AnyWanted(changes, func(c keyserver.Change) bool {
		return c.Kind == keyserver.ChangeTrustedServer || c.Kind == keyserver.ChangeTrustedCA
	})
}

// trust returns the current content of the registry.
func (d *endpoint) trust(ctx context.Context) (trust, error) {
	d.reading.Lock()
	defer d.reading.Unlock()
	version := d.version.Load()
	if d.known == version {
		return d.content, nil
	}
	t, err := load(ctx, d.registry)
	if err != nil {
		return trust{}, err
	}
	d.known, d.content = version, t
	return t, nil
}

// mayShutOut reports whether one of the changes may exclude a peer, for example a removed or revoked CA. A new peer
// counts, too: if it has the same key as another peer, the key identifies neither of the two.
func mayShutOut(changes []keyserver.Change) bool {
	return keyserver.AnyWanted(changes, func(c keyserver.Change) bool {
		return c.Kind == keyserver.ChangeTrustedServer || c.Kind == keyserver.ChangeRevocation ||
			c.Kind == keyserver.ChangeTrustedCA && c.Action != keyserver.Created
	})
}

func (d *endpoint) watch(ctx context.Context) {
	defer close(d.done)
	again := time.NewTimer(recheckEvery)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case told := <-d.learnQueue:
			d.learn(ctx, told)
			continue
		case <-d.kick:
		case <-again.C:
			d.version.Add(1) // read the registry again, even if no change was announced
		}
		again.Reset(recheckEvery)
		if err := d.recheck(ctx); err != nil && ctx.Err() == nil {
			d.logger.Warn("the connections of peers could not be checked against the trust list; trying again", "error", err)
			again.Reset(recheckSoon)
		}
	}
}

// settle checks the open connections if a change was announced since the last check. Each call begins with settle, so
// that it cannot use a connection that an earlier change excludes.
func (d *endpoint) settle(ctx context.Context) error {
	if d.settled.Load() == d.announced.Load() {
		return nil
	}
	d.settling.Lock()
	defer d.settling.Unlock()
	announced := d.announced.Load()
	if d.settled.Load() == announced {
		return nil
	}
	if err := d.recheck(ctx); err != nil {
		return err
	}
	d.settled.Store(announced)
	return nil
}

// recheck closes the connections that the registry no longer permits.
func (d *endpoint) recheck(ctx context.Context) error {
	t, err := d.trust(ctx)
	if err != nil {
		return err
	}
	d.mu.Lock()
	connections := make([]*conn, 0, len(d.open))
	for c := range d.open {
		connections = append(connections, c)
	}
	d.mu.Unlock()
	for _, c := range connections {
		who, err := d.inForce(ctx, t, c.chain)
		if unread := (*unreadError)(nil); errors.As(err, &unread) {
			return err
		}
		if err == nil {
			err = c.checkPeer(who)
		}
		if err == nil {
			continue
		}
		d.logger.Info("closing the connection of a peer that is no longer trusted", "peer", c.peer.System, "cause", err)
		_ = c.Close() // the peer notices the end; the error does not matter
	}
	d.afterCheck(t)
	return nil
}

// handshake runs one side of TLS and registers the connection. It fails if check returns an error for the peer.
func (d *endpoint) handshake(ctx context.Context, raw net.Conn, side func(net.Conn, *tls.Config) *tls.Conn,
	check func(keyserver.TrustedServer) error,
) (net.Conn, credentials.AuthInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	c := &conn{endpoint: d}
	var before uint64
	c.Conn = side(raw, &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{alpn},
		Certificates: []tls.Certificate{*d.certificate()}, ClientAuth: tls.RequireAnyClientCert,
		// With a session ticket, a client would be accepted by an older list of CAs.
		SessionTicketsDisabled: true,
		// Both sides are identified by the keys of their certificates, not by names: VerifyConnection checks the key
		// and the chain.
		InsecureSkipVerify: true, //nolint:gosec // see above
		VerifyConnection: func(s tls.ConnectionState) (err error) {
			before = d.announced.Load()
			c.chain = s.PeerCertificates
			if c.peer, err = d.identify(ctx, c.chain); err != nil {
				return err
			}
			return check(c.peer)
		},
	})
	err := c.HandshakeContext(ctx)
	if err == nil && c.ConnectionState().NegotiatedProtocol != alpn {
		err = errors.New("the other side does not support HTTP/2")
	}
	if err == nil {
		err = d.enter(ctx, c, before)
	}
	if err != nil {
		d.complain(raw, err)
		_ = raw.Close()
		return nil, nil, err
	}
	d.queueChain(c)
	return c, authInfo{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, conn: c}, nil
}

func (d *endpoint) complain(raw net.Conn, cause error) {
	if d.complaints.AllowN(d.clock(), 1) {
		d.logger.Warn("a connection between key servers was refused", "remote", raw.RemoteAddr().String(), "cause", cause)
	}
}

func (d *endpoint) identify(ctx context.Context, chain []*x509.Certificate) (keyserver.TrustedServer, error) {
	t, err := d.trust(ctx)
	if err != nil {
		return keyserver.TrustedServer{}, err
	}
	return d.inForce(ctx, t, chain)
}

// inForce returns the peer whose certificate is the first in the chain. It fails if the certificate is not trusted or
// checkPeer revoked.
func (d *endpoint) inForce(ctx context.Context, t trust, chain []*x509.Certificate) (keyserver.TrustedServer, error) {
	who, ways, err := t.identify(chain, d.usage, d.clock())
	if err == nil {
		err = t.notRevoked(ctx, d.registry, ways)
	}
	return who, err
}

// enter registers a connection. If a change was announced since the handshake read the registry, enter checks the
// connection again. Later changes cause a check of all registered connections.
func (d *endpoint) enter(ctx context.Context, c *conn, before uint64) error {
	d.mu.Lock()
	held := 0
	for other := range d.open {
		if other.peer.System == c.peer.System {
			held++
		}
	}
	if held >= maxConnections {
		d.mu.Unlock()
		return fmt.Errorf("the peer %d has %d connections, the limit per peer", c.peer.System, held)
	}
	d.open[c] = struct{}{}
	d.mu.Unlock()
	overtaken := d.announced.Load() != before
	if !overtaken {
		return nil
	}
	who, err := d.identify(ctx, c.chain)
	if err == nil {
		err = c.checkPeer(who)
	}
	if err != nil {
		d.leave(c)
	}
	return err
}

// holds reports whether a connection is registered. Only permitted connections stay registered.
func (d *endpoint) holds(c *conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.open[c]
	return ok
}

func (d *endpoint) leave(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, c)
}

// conn is a connection that an endpoint made.
type conn struct {
	*tls.Conn
	endpoint *endpoint
	peer     keyserver.TrustedServer
	chain    []*x509.Certificate
}

// checkPeer returns an error unless who is the peer for which the connection was accepted. A peer that was removed and
// registered again is a different peer.
func (c *conn) checkPeer(who keyserver.TrustedServer) error {
	if who.System != c.peer.System || who.Transport != c.peer.Transport {
		return fmt.Errorf("the key of the peer %d was registered again, as the key of the peer %d", c.peer.System, who.System)
	}
	return nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.endpoint.leave(c)
	return c.Conn.Close()
}

// authInfo gives the handlers of calls access to the connection and its peer.
type authInfo struct {
	credentials.CommonAuthInfo
	conn *conn
}

// AuthType implements credentials.AuthInfo.
func (authInfo) AuthType() string { return "mutual TLS between key servers" }
