package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Gate implements the mutual TLS of the external listener. It accepts only registered peers.
type Gate struct {
	endpoint *endpoint
	accepted *accepted
}

var _ credentials.TransportCredentials = (*Gate)(nil)

// NewGate returns a gate. It reads its own certificate from own at each handshake. The caller must close it.
func NewGate(r Registry, own func() *tls.Certificate, clock func() time.Time, logger *slog.Logger) *Gate {
	return &Gate{newEndpoint(r, own, x509.ExtKeyUsageClientAuth, clock, logger, func(trust) {}), newAccepted(maxPending, maxPendingFrom, maxAccepted)}
}

// Close stops the checks of the open connections.
func (g *Gate) Close() { g.endpoint.close() }

// Changed must be called for every change of the registry. It never blocks.
func (g *Gate) Changed(changes []keyserver.Change) { g.endpoint.changed(changes) }

// Listen returns a listener that limits the number of connections, in particular before the handshake.
func (g *Gate) Listen(l net.Listener) net.Listener { return boundedListener{l, g} }

// ServerHandshake implements credentials.TransportCredentials.
func (g *Gate) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := g.endpoint.handshake(context.Background(), raw, tls.Server, func(keyserver.TrustedServer) error { return nil })
	if v, ok := raw.(*acceptedConn); ok && err == nil {
		v.established()
	}
	return conn, info, err
}

// ClientHandshake implements credentials.TransportCredentials.
func (g *Gate) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("a gate accepts connections and does not open any")
}

// Info implements credentials.TransportCredentials.
func (g *Gate) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials. It returns the same gate.
func (g *Gate) Clone() credentials.TransportCredentials { return g }

// OverrideServerName implements credentials.TransportCredentials.
func (g *Gate) OverrideServerName(string) error { return nil }
