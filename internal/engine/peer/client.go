package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Limits of a client for one peer.
const (
	DefaultTimeout = 10 * time.Second
	connections    = 2   // one for each CPU core of a small machine
	maxInFlight    = 128 // concurrent calls
	dialTimeout    = 5 * time.Second
	retireWithin   = streamTimeout // maximum time for calls on connections that are replaced
)

// ClientConfig has the dependencies of a client. Every field except Observer is required.
type ClientConfig struct {
	Registry    Registry
	Certificate func() *tls.Certificate // own certificate, read at each handshake
	Timeout     time.Duration           // of one call
	Clock       func() time.Time
	Logger      *slog.Logger
	Observer    Observer
}

// Client calls peers. It has a pool of connections to each peer, with a limited size, and creates the pool at the first
// call.
type Client struct {
	ClientConfig
	endpoint *endpoint

	lists lists // limits long responses from all peers

	mu     sync.Mutex
	pools  map[keyserver.SystemID]*pool
	closed bool
	// making is locked while a pool is created. So records are read in the order in which pools are created for them.
	making   sync.Mutex
	retiring sync.WaitGroup
	stopping chan struct{}
}

// NewClient returns a client. The caller must close it.
func NewClient(config ClientConfig) *Client {
	c := &Client{ClientConfig: config, lists: make(lists, maxLists), pools: map[keyserver.SystemID]*pool{}, stopping: make(chan struct{})}
	c.endpoint = newEndpoint(c.Registry, c.Certificate, x509.ExtKeyUsageServerAuth, c.Clock, c.Logger, c.prune)
	return c
}

// Close closes every connection, which ends the calls in progress.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	close(c.stopping)
	var errs []error
	for system, p := range c.pools {
		errs = append(errs, p.close())
		delete(c.pools, system)
	}
	c.mu.Unlock()
	c.retiring.Wait()
	c.endpoint.close()
	return errors.Join(errs...)
}

// Changed must be called for every change of the registry. It never blocks.
func (c *Client) Changed(changes []keyserver.Change) { c.endpoint.changed(changes) }

// Renew makes the next calls use new connections with the current certificate. Calls in progress end on their old
// connections.
func (c *Client) Renew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	for system := range c.pools {
		c.retire(system)
	}
}

// At returns the client for the key server of a record.
func (c *Client) At(peer keyserver.TrustedServer) keyserver.Federated { return remote{c, peer} }

var errStopping = errors.New("this key server is stopping")

// enter takes a place for a call to the peer of a record. The caller must call leave of the returned pool.
func (c *Client) enter(ctx context.Context, peer keyserver.TrustedServer) (*pool, error) {
	if err := c.endpoint.settle(ctx); err != nil {
		return nil, err
	}
	p, err := c.pool(ctx, peer)
	if err != nil {
		return nil, err
	}
	if err := p.enter(c.Clock()); err != nil {
		p.users.Done()
		return nil, err
	}
	return p, nil
}

// pool returns the pool of connections to the peer of a record, and counts one more user. If the existing pool was
// created for a different record, it is unknown which record is newer. Therefore pool reads the current record.
func (c *Client) pool(ctx context.Context, peer keyserver.TrustedServer) (*pool, error) {
	if p, err := c.held(peer); p != nil || err != nil {
		return p, err
	}
	c.making.Lock()
	defer c.making.Unlock()
	present, err := c.record(ctx, peer.System)
	if err != nil {
		return nil, err
	}
	if p, err := c.held(present); p != nil || err != nil {
		return p, err
	}
	return c.replace(present)
}

// held returns the existing pool for a record, and counts one more user. It returns nil if there is no pool for this
// record.
func (c *Client) held(record keyserver.TrustedServer) (*pool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errStopping
	}
	p, ok := c.pools[record.System]
	if !ok || !sameRecord(p.peer, record) {
		return nil, nil
	}
	p.users.Add(1)
	return p, nil
}

// record reads the current record of a peer.
func (c *Client) record(ctx context.Context, system keyserver.SystemID) (keyserver.TrustedServer, error) {
	list, err := c.Registry.TrustedServers(ctx)
	if err != nil {
		return keyserver.TrustedServer{}, err
	}
	i := slices.IndexFunc(list, func(s keyserver.TrustedServer) bool { return s.System == system })
	if i < 0 {
		return keyserver.TrustedServer{}, fmt.Errorf("the peer %d is no longer registered", system)
	}
	return list[i], nil
}

// replace creates the pool for a record, with one user, and retires an earlier pool of the peer.
func (c *Client) replace(record keyserver.TrustedServer) (*pool, error) {
	p, err := c.connect(record)
	if err != nil {
		return nil, err
	}
	p.users.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errors.Join(errStopping, p.close())
	}
	c.retire(record.System)
	c.pools[record.System] = p
	return p, nil
}

// prune retires the pools of peers that were removed or whose records changed. The endpoint has checked the open
// connections before.
func (c *Client) prune(t trust) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	for system, p := range c.pools {
		if !slices.ContainsFunc(t.servers, func(s keyserver.TrustedServer) bool { return s.System == system && sameRecord(s, p.peer) }) {
			c.retire(system)
		}
	}
}

// retire removes a pool. It closes the pool when its calls have ended, at the latest after retireWithin. The caller
// must hold mu.
func (c *Client) retire(system keyserver.SystemID) {
	p, ok := c.pools[system]
	if !ok {
		return
	}
	delete(c.pools, system)
	c.retiring.Go(func() {
		idle := make(chan struct{})
		go func() { defer close(idle); p.users.Wait() }()
		late := time.NewTimer(retireWithin)
		defer late.Stop()
		select {
		case <-idle:
		case <-late.C:
		case <-c.stopping:
		}
		_ = p.close() // no caller can handle the error
		<-idle
	})
}

// sameRecord reports whether two records have the same address, port and certificate. Other fields may differ.
func sameRecord(a, b keyserver.TrustedServer) bool {
	return a.Name == b.Name && a.Port == b.Port && bytes.Equal(a.Certificate.DER, b.Certificate.DER)
}

// key implements the TLS of a client for one peer.
type key struct {
	endpoint *endpoint
	system   keyserver.SystemID
}

var _ credentials.TransportCredentials = key{}

// ClientHandshake implements credentials.TransportCredentials. It fails unless the other side is the peer of k. Another
// registered peer is not accepted.
func (k key) ClientHandshake(ctx context.Context, _ string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return k.endpoint.handshake(ctx, raw, tls.Client, func(who keyserver.TrustedServer) error {
		if who.System != k.system {
			return fmt.Errorf("the connection is for the peer %d, but the peer %d responded", k.system, who.System)
		}
		return nil
	})
}

// ServerHandshake implements credentials.TransportCredentials.
func (key) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("a client does not accept connections")
}

// Info implements credentials.TransportCredentials.
func (key) Info() credentials.ProtocolInfo { return credentials.ProtocolInfo{SecurityProtocol: "tls"} }

// Clone implements credentials.TransportCredentials.
func (k key) Clone() credentials.TransportCredentials { return k }

// OverrideServerName implements credentials.TransportCredentials.
func (key) OverrideServerName(string) error { return nil }
