package pgtest

import (
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Proxy is a network path to a server that a test can interrupt.
type Proxy struct {
	listener net.Listener
	socket   string

	mu     sync.Mutex
	change *sync.Cond
	holds  [2]bool // stops data to the server, and data from it
	open   map[net.Conn]struct{}
	closed bool
	ways   sync.WaitGroup
}

// Proxy starts a Proxy, and returns it with the URL of a database through it.
func (c *Cluster) Proxy(t testing.TB, url string) (*Proxy, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Proxy{listener: listener, socket: filepath.Join(c.dir, ".s.PGSQL.5432"), open: map[net.Conn]struct{}{}}
	l.change = sync.NewCond(&l.mu)
	l.ways.Go(l.accept)
	t.Cleanup(l.close)
	return l, fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", superuser, listener.Addr(), databaseOf(url))
}

// Hold stops data to the server (questions) or from the server (answers). Neither side notices
// that the other has closed a connection, and new connections get no response. After
// Hold(false, false), the stopped data is delivered.
func (l *Proxy) Hold(questions, answers bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds = [2]bool{questions, answers}
	l.change.Broadcast()
}

func (l *Proxy) close() {
	l.mu.Lock()
	l.closed = true
	_ = l.listener.Close()
	for c := range l.open {
		_ = c.Close()
	}
	l.change.Broadcast()
	l.mu.Unlock()
	l.ways.Wait()
}

func (l *Proxy) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.ways.Go(func() { l.join(near) })
	}
}

// join forwards one connection. It connects to the server when data may pass.
func (l *Proxy) join(near net.Conn) {
	defer l.forget(near)
	if !l.keep(near) || !l.passable(0) {
		return
	}
	far, err := net.DialTimeout("unix", l.socket, 10*time.Second)
	if err != nil {
		return
	}
	defer l.forget(far)
	if !l.keep(far) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.carry(far, near, 0) })
	both.Go(func() { l.carry(near, far, 1) })
	both.Wait()
}

func (l *Proxy) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c] = struct{}{}
	return !l.closed
}

func (l *Proxy) forget(c net.Conn) {
	_ = c.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
}

// carry copies data in one direction until the connection ends.
func (l *Proxy) carry(to, from net.Conn, way int) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !l.passable(way) {
			return
		}
		if n > 0 {
			if _, writeErr := to.Write(buffer[:n]); writeErr != nil {
				err = writeErr
			}
		}
		if err != nil { // err may be io.EOF
			_ = to.Close()
			_ = from.Close()
			return
		}
	}
}

// passable waits until data may pass, and returns false after close.
func (l *Proxy) passable(way int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.holds[way] && !l.closed {
		l.change.Wait()
	}
	return !l.closed
}
