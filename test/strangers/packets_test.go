package strangers

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// sendPackets opens a connection. On it, it sends the requests of a packet at once, reads all responses, and begins
// again, until the server closes the connection. It calls answered for each response.
func (s sender) sendPackets(config *tls.Config, answered func()) error {
	config = config.Clone()
	config.NextProtos = []string{"http/1.1"}
	if s.HTTP2 {
		config.NextProtos = []string{http2.NextProtoTLS}
	}
	conn, err := tls.Dial("tcp", s.Address, config)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if s.HTTP2 {
		return s.sendStreams(conn, answered)
	}
	packet := bytes.Repeat(fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: localhost\r\n\r\n", s.Method, s.Path), s.Packet)
	for responses := bufio.NewReader(conn); ; {
		if _, err := conn.Write(packet); err != nil {
			return err
		}
		for range s.Packet {
			resp, err := http.ReadResponse(responses, nil)
			if err != nil {
				return err
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				return err
			}
			answered()
		}
	}
}

// sendStreams is like sendPackets, with a stream for each request (RFC 9113).
func (s sender) sendStreams(conn net.Conn, answered func()) error {
	p := &packet{Conn: conn}
	a, err := newAttacker(p, "localhost", 1<<16)
	if err == nil {
		err = a.readEverything()
	}
	for err == nil {
		for range s.Packet {
			if _, err := a.ask(s.Method, s.Path, nil, true); err != nil {
				return err
			}
		}
		if err := p.flush(); err != nil {
			return err
		}
		for range s.Packet {
			select {
			case <-a.ended:
				answered()
			case <-a.pongs: // closed with the connection
				return net.ErrClosed
			}
		}
	}
	return err
}

// packet is a connection that keeps written bytes until flush, and then writes them at once.
type packet struct {
	net.Conn
	mu   sync.Mutex
	kept bytes.Buffer
}

// Write implements net.Conn.
func (p *packet) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kept.Write(b)
}

func (p *packet) flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.kept.WriteTo(p.Conn)
	return err
}
