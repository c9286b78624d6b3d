package peer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/clientaddr"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
)

// Limits of connections at the external listener. Any client can open a connection and send nothing, because a client
// proves its identity only in the TLS handshake.
const (
	maxPending     = 128 // connections before the end of the handshake
	maxPendingFrom = 16  // of these connections, from one client network
	maxAccepted    = 1024
)

// accepted counts the accepted connections of a listener.
type accepted struct {
	pending *quota.Quota[netip.Prefix] // connections before the end of the handshake, by client network
	all     *quota.Quota[struct{}]
}

func newAccepted(pending, pendingFrom, all int64) *accepted {
	return &accepted{quota.New[netip.Prefix](pending, pendingFrom), quota.New[struct{}](all, all)}
}

var errTooMany = errors.New("too many connections")

// accept counts an accepted connection. It fails if a limit is reached.
func (v *accepted) accept(raw net.Conn) (*acceptedConn, error) {
	if v.all.Take(struct{}{}, 1) != quota.Taken {
		return nil, fmt.Errorf("%w: %d, the limit", errTooMany, v.all.Held())
	}
	from := clientaddr.Network(clientaddr.OfConn(raw.RemoteAddr()))
	verdict := v.pending.Take(from, 1)
	if verdict == quota.Taken {
		return &acceptedConn{
			Conn:        raw,
			established: sync.OnceFunc(func() { v.pending.Return(from, 1) }),
			gone:        sync.OnceFunc(func() { v.all.Return(struct{}{}, 1) }),
		}, nil
	}
	v.all.Return(struct{}{}, 1)
	if verdict == quota.FullEach {
		return nil, fmt.Errorf("%w from one address without a completed TLS handshake", errTooMany)
	}
	return nil, fmt.Errorf("%w: %d without a completed TLS handshake, the limit", errTooMany, v.pending.Held())
}

// acceptedConn is a connection that counts towards the limits until it is closed.
type acceptedConn struct {
	net.Conn
	established func() // ends the count as a pending connection
	gone        func()
}

// Close implements net.Conn.
func (v *acceptedConn) Close() error {
	v.established() // in case the handshake did not end
	v.gone()
	return v.Conn.Close()
}

// boundedListener closes connections beyond the limits immediately.
type boundedListener struct {
	net.Listener
	gate *Gate
}

// Accept implements net.Listener.
func (p boundedListener) Accept() (net.Conn, error) {
	for {
		raw, err := p.Listener.Accept()
		if err != nil {
			return nil, err
		}
		v, err := p.gate.accepted.accept(raw)
		if err == nil {
			return v, nil
		}
		p.gate.endpoint.complain(raw, err)
		_ = raw.Close() // the client gets no other response
	}
}
