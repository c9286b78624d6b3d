package processes

import (
	"net"
	"sync"
	"testing"
)

// link is a proxy from one key server to another: the first one's record of the second has the port of the link. A test
// can stop data in either direction, break the connections, or change the target.
type link struct {
	listener net.Listener

	mu       sync.Mutex
	moved    *sync.Cond
	target   string
	requests bool // requests are stopped
	answers  bool // responses are stopped
	pulses   int  // how often pulse was called
	open     map[*passage]struct{}
	pumps    sync.WaitGroup
}

// passage is one connection through a link.
type passage struct {
	near, far net.Conn
	over      bool
}

// newLink listens at the host of the target, so that the host in the target's trust blob stays valid.
func newLink(t testing.TB, host, target string) *link {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	k := &link{listener: l, target: target, open: map[*passage]struct{}{}}
	k.moved = sync.NewCond(&k.mu)
	k.pumps.Go(k.accept)
	t.Cleanup(func() {
		_ = l.Close()
		k.cut()
		k.pumps.Wait()
	})
	return k
}

func (k *link) port() int { return k.listener.Addr().(*net.TCPAddr).Port }

// hold stops or continues each direction. Stopped data waits, as if packets were lost.
func (k *link) hold(requests, answers bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.requests, k.answers = requests, answers
	k.moved.Broadcast()
}

// pulse forwards the data that waits now, but no later data.
func (k *link) pulse() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pulses++
	k.moved.Broadcast()
}

// cut breaks every connection. The link accepts new connections.
func (k *link) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for p := range k.open {
		k.drop(p)
	}
}

// drop resets a connection. The caller holds mu.
func (k *link) drop(p *passage) {
	p.over = true
	for _, c := range []net.Conn{p.near, p.far} {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	delete(k.open, p)
	k.moved.Broadcast()
}

// lead forwards new connections to another target, and breaks the existing connections.
func (k *link) lead(target string) {
	k.mu.Lock()
	k.target = target
	k.mu.Unlock()
	k.cut()
}

func (k *link) accept() {
	for {
		near, err := k.listener.Accept()
		if err != nil {
			return
		}
		k.mu.Lock()
		target := k.target
		k.mu.Unlock()
		far, err := net.Dial("tcp", target)
		if err != nil {
			_ = near.(*net.TCPConn).SetLinger(0)
			_ = near.Close()
			continue
		}
		p := &passage{near: near, far: far}
		k.mu.Lock()
		k.open[p] = struct{}{}
		k.mu.Unlock()
		k.pumps.Go(func() { k.pump(p, far, near, &k.requests) })
		k.pumps.Go(func() { k.pump(p, near, far, &k.answers) })
	}
}

func (k *link) pump(p *passage, to, from net.Conn, held *bool) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		k.mu.Lock()
		for pulse := k.pulses; *held && !p.over && k.pulses == pulse; {
			k.moved.Wait()
		}
		over := p.over
		k.mu.Unlock()
		if over {
			return
		}
		if n > 0 {
			_, err = to.Write(b[:n])
		}
		if err != nil {
			k.mu.Lock()
			k.drop(p)
			k.mu.Unlock()
			return
		}
	}
}
