package chaos

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// wire carries bytes between clients and a server, or disturbs them.
type wire struct {
	dir      string // directory of the socket, if it is a Unix socket
	listener net.Listener
	dial     func() (net.Conn, error)

	cut     atomic.Bool  // connections are refused, and existing ones closed
	silent  atomic.Bool  // data is dropped without an error
	delay   atomic.Int64 // delay of each piece of data, in nanoseconds
	mu      sync.Mutex
	carried map[net.Conn]bool
}

// unixWire forwards to the socket of a PostgreSQL server.
func unixWire(t testing.TB, dir string) *wire {
	t.Helper()
	const name = ".s.PGSQL.5432"
	at, err := os.MkdirTemp("", "wire-") //nolint:usetesting // a socket's path must be short
	rig.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(at) })
	l, err := net.Listen("unix", filepath.Join(at, name))
	rig.Must(t, err)
	w := &wire{dir: at, listener: l, dial: func() (net.Conn, error) { return net.Dial("unix", filepath.Join(dir, name)) }}
	w.begin(t)
	return w
}

// tcpWire forwards to the first reachable address.
func tcpWire(t testing.TB, host string, to func() []string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	rig.Must(t, err)
	w := &wire{listener: l, dial: func() (c net.Conn, err error) {
		for _, at := range to() {
			if c, err = net.DialTimeout("tcp", at, time.Second); err == nil {
				break
			}
		}
		return c, err
	}}
	w.begin(t)
	return w
}

func (w *wire) port() uint16 {
	at, _ := w.listener.Addr().(*net.TCPAddr)
	return uint16(at.Port)
}

func (w *wire) begin(t testing.TB) {
	w.carried = map[net.Conn]bool{}
	go func() {
		for {
			c, err := w.listener.Accept()
			if err != nil {
				return
			}
			go w.carry(c)
		}
	}()
	t.Cleanup(func() {
		_ = w.listener.Close()
		w.closeConnections()
	})
}

// keep adds or removes a connection that closeConnections closes.
func (w *wire) keep(c net.Conn, is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if is {
		w.carried[c] = true
	} else {
		delete(w.carried, c)
	}
}

func (w *wire) carry(from net.Conn) {
	defer from.Close()
	if w.cut.Load() {
		return
	}
	to, err := w.dial()
	if err != nil {
		return
	}
	defer to.Close()
	for _, c := range []net.Conn{from, to} {
		w.keep(c, true)
		defer w.keep(c, false)
	}
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			_, _ = io.Copy(faultyConn{way[1], w}, way[0])
			ended <- struct{}{}
		}()
	}
	<-ended
}

// faultyConn delays or drops data as the fields of the wire require.
type faultyConn struct {
	net.Conn
	w *wire
}

func (h faultyConn) Write(b []byte) (int, error) {
	for h.w.silent.Load() {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(time.Duration(h.w.delay.Load()))
	if h.w.cut.Load() {
		return 0, net.ErrClosed
	}
	return h.Conn.Write(b)
}

// closeConnections closes every connection.
func (w *wire) closeConnections() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.carried {
		_ = c.Close()
	}
}
