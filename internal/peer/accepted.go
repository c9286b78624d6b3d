package peer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/keyserver-operator/keyserver-operator/internal/origin"
)

// Bounds of connections at the external listener. Anybody can make one and say
// nothing; nobody has to prove who he is before he holds it.
const (
	maxPending     = 128 // that have not shaken hands
	maxPendingFrom = 16  // of them from one address
	maxAccepted    = 1024
)

// accepted counts the connections that were accepted.
type accepted struct {
	maxPending, maxFrom, maxAll int

	mu      sync.Mutex
	from    map[netip.Prefix]int // that have not shaken hands
	pending int                  // sum of from
	all     int
}

func newAccepted() *accepted {
	return &accepted{maxPending: maxPending, maxFrom: maxPendingFrom, maxAll: maxAccepted, from: map[netip.Prefix]int{}}
}

var errTooMany = errors.New("too many connections")

// accept takes a place for a connection that was accepted.
func (v *accepted) accept(raw net.Conn) (*acceptedConn, error) {
	from := origin.Network(origin.OfConn(raw.RemoteAddr()))
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.all >= v.maxAll:
		return nil, fmt.Errorf("%w: %d, as many as there may be", errTooMany, v.all)
	case v.pending >= v.maxPending:
		return nil, fmt.Errorf("%w: %d that have not shaken hands", errTooMany, v.pending)
	case v.from[from] >= v.maxFrom:
		return nil, fmt.Errorf("%w: %d from one address that have not shaken hands", errTooMany, v.from[from])
	}
	v.from[from]++
	v.pending++
	v.all++
	return &acceptedConn{Conn: raw, of: v, from: from, pending: true}, nil
}

// acceptedConn is a connection that was accepted.
type acceptedConn struct {
	net.Conn
	of      *accepted
	from    netip.Prefix
	pending bool // guarded by of.mu, as is gone
	gone    bool
}

// established is for one that has shaken hands.
func (v *acceptedConn) established() {
	v.of.mu.Lock()
	defer v.of.mu.Unlock()
	v.answered()
}

// answered ends the pending. The caller holds of.mu.
func (v *acceptedConn) answered() {
	if !v.pending {
		return
	}
	v.pending = false
	v.of.pending--
	if v.of.from[v.from]--; v.of.from[v.from] == 0 {
		delete(v.of.from, v.from)
	}
}

// Close implements net.Conn.
func (v *acceptedConn) Close() error {
	v.of.mu.Lock()
	v.answered()
	if !v.gone {
		v.gone = true
		v.of.all--
	}
	v.of.mu.Unlock()
	return v.Conn.Close()
}

// boundedListener is a listener that lets nobody wait who is one too many.
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
		_ = raw.Close() // he learns that much
	}
}
