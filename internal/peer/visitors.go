package peer

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// Bounds of connections at the external listener. Anybody can make one and say
// nothing; nobody has to prove who he is before he holds it.
const (
	maxKnocking     = 128 // that have not shaken hands
	maxKnockingFrom = 16  // of them from one address
	maxVisitors     = 1024
)

// visitors counts the connections that were accepted.
type visitors struct {
	maxKnocking, maxFrom, maxAll int

	mu       sync.Mutex
	from     map[netip.Prefix]int // that have not shaken hands
	knocking int                  // sum of from
	all      int
}

func newVisitors() *visitors {
	return &visitors{maxKnocking: maxKnocking, maxFrom: maxKnockingFrom, maxAll: maxVisitors, from: map[netip.Prefix]int{}}
}

var errTooMany = errors.New("too many connections")

// knock takes a place for a connection that was accepted.
func (v *visitors) knock(raw net.Conn) (*visitor, error) {
	from := origin(raw.RemoteAddr())
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.all >= v.maxAll:
		return nil, fmt.Errorf("%w: %d, as many as there may be", errTooMany, v.all)
	case v.knocking >= v.maxKnocking:
		return nil, fmt.Errorf("%w: %d that have not shaken hands", errTooMany, v.knocking)
	case v.from[from] >= v.maxFrom:
		return nil, fmt.Errorf("%w: %d from one address that have not shaken hands", errTooMany, v.from[from])
	}
	v.from[from]++
	v.knocking++
	v.all++
	return &visitor{Conn: raw, of: v, from: from, knocking: true}, nil
}

// origin is whose connections are counted together: an address, or the network
// of 64 bits that one machine has of IPv6.
func origin(at net.Addr) netip.Prefix {
	tcp, ok := at.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	address := tcp.AddrPort().Addr().Unmap()
	bits := 64
	if address.Is4() {
		bits = 32
	}
	from, _ := address.WithZone("").Prefix(bits) // both fit
	return from
}

// visitor is a connection that was accepted.
type visitor struct {
	net.Conn
	of       *visitors
	from     netip.Prefix
	knocking bool // guarded by of.mu, as is gone
	gone     bool
}

// welcome is for a visitor that has shaken hands.
func (v *visitor) welcome() {
	v.of.mu.Lock()
	defer v.of.mu.Unlock()
	v.answered()
}

// answered ends the knocking. The caller holds of.mu.
func (v *visitor) answered() {
	if !v.knocking {
		return
	}
	v.knocking = false
	v.of.knocking--
	if v.of.from[v.from]--; v.of.from[v.from] == 0 {
		delete(v.of.from, v.from)
	}
}

// Close implements net.Conn.
func (v *visitor) Close() error {
	v.of.mu.Lock()
	v.answered()
	if !v.gone {
		v.gone = true
		v.of.all--
	}
	v.of.mu.Unlock()
	return v.Conn.Close()
}

// porch is a listener that lets nobody wait who is one too many.
type porch struct {
	net.Listener
	gate *Gate
}

// Accept implements net.Listener.
func (p porch) Accept() (net.Conn, error) {
	for {
		raw, err := p.Listener.Accept()
		if err != nil {
			return nil, err
		}
		v, err := p.gate.visitors.knock(raw)
		if err == nil {
			return v, nil
		}
		p.gate.door.complain(raw, err)
		_ = raw.Close() // he learns that much
	}
}
