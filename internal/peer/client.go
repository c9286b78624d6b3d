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
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Bounds of what a client holds for one peer.
const (
	DefaultTimeout = 10 * time.Second
	connections    = 2   // one for each of the cores that a small machine has
	maxInFlight    = 128 // calls at once
	dialTimeout    = 5 * time.Second
)

// ClientConfig is what a client needs. Every field is required.
type ClientConfig struct {
	Registry    Registry
	Certificate func() *tls.Certificate // its own, at each handshake
	Timeout     time.Duration           // of one call
	Clock       func() time.Time
	Logger      *slog.Logger
}

// Client asks peers. It holds a bounded pool of connections to each, made at
// the first call.
type Client struct {
	ClientConfig
	door *door

	mu     sync.Mutex
	pools  map[keyserver.SystemID]*pool
	closed bool
}

// NewClient returns a client. Close it.
func NewClient(c ClientConfig) *Client {
	return &Client{
		ClientConfig: c, pools: map[keyserver.SystemID]*pool{},
		door: newDoor(c.Registry, c.Certificate, x509.ExtKeyUsageServerAuth, c.Clock, c.Logger),
	}
}

// Close ends every connection, and the calls that are under way.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	var errs []error
	for system, p := range c.pools {
		errs = append(errs, p.close())
		delete(c.pools, system)
	}
	c.door.close()
	return errors.Join(errs...)
}

// Changed has to be told of every change of the registry; it never blocks.
func (c *Client) Changed(changes []keyserver.Change) { c.door.changed(changes) }

// At returns the peer of a record as a key server.
func (c *Client) At(peer keyserver.TrustedServer) keyserver.Federated { return remote{c, peer} }

// pool answers the connections to the peer of a record. A record that says
// something else than the one that they were made for has new ones made.
func (c *Client) pool(ctx context.Context, peer keyserver.TrustedServer) (*pool, error) {
	if err := c.door.settle(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errors.New("this key server is stopping")
	}
	if p, ok := c.pools[peer.System]; ok {
		if sameRecord(p.peer, peer) {
			return p, nil
		}
		delete(c.pools, peer.System)
		_ = p.close() // nobody is left to tell
	}
	p, err := c.connect(peer)
	if err != nil {
		return nil, err
	}
	c.pools[peer.System] = p
	return p, nil
}

// sameRecord reports whether two records lead to the same peer in the same
// way. What a record says besides, people may change.
func sameRecord(a, b keyserver.TrustedServer) bool {
	return a.Name == b.Name && a.Port == b.Port && bytes.Equal(a.Certificate.DER, b.Certificate.DER)
}

// key is the credentials with which a client knocks at one peer.
type key struct {
	door   *door
	system keyserver.SystemID
}

var _ credentials.TransportCredentials = key{}

// ClientHandshake implements credentials.TransportCredentials. Whoever answers
// must be the peer that was meant, not only some peer.
func (k key) ClientHandshake(ctx context.Context, _ string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return k.door.handshake(ctx, raw, tls.Client, func(who keyserver.TrustedServer) error {
		if who.System != k.system {
			return fmt.Errorf("the peer %d was asked for, and the peer %d answers", k.system, who.System)
		}
		return nil
	})
}

// ServerHandshake implements credentials.TransportCredentials.
func (key) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("a client waits for nobody")
}

// Info implements credentials.TransportCredentials.
func (key) Info() credentials.ProtocolInfo { return credentials.ProtocolInfo{SecurityProtocol: "tls"} }

// Clone implements credentials.TransportCredentials.
func (k key) Clone() credentials.TransportCredentials { return k }

// OverrideServerName implements credentials.TransportCredentials.
func (key) OverrideServerName(string) error { return nil }
