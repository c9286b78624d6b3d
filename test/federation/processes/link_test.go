package processes

import (
	"net"
	"sync"
	"testing"
)

// link is the network from one key server to another: the first one's record of the second has the port
// of the link. A test can make it hold data in either direction, break it, or lead it to another target.
type link struct {
	listener net.Listener

	mu       sync.Mutex
	moved    *sync.Cond
	target   string
	requests bool // held
	answers  bool // held
	pulses   int  // how often the held data was passed on
	open     map[*passage]struct{}
	pumps    sync.WaitGroup
}

// passage is one connection through a link.
type passage struct {
	near, far net.Conn
	over      bool
}

// newLink listens at the host of the target, so that the name in its trust blob stays the same.
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

// hold stops data in the given directions. Data in flight waits, as if packets were lost.
func (k *link) hold(requests, answers bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.requests, k.answers = requests, answers
	k.moved.Broadcast()
}

// pulse passes on the data that is held now, but no later data.
func (k *link) pulse() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pulses++
	k.moved.Broadcast()
}

// cut breaks every connection. New ones are accepted.
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

// lead directs new connections to another target, and breaks the old ones.
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
