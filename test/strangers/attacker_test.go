package strangers

import (
	"bytes"
	"crypto/tls"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// attacker is one HTTP/2 connection of an attacker. It can violate all rules except those of framing.
type attacker struct {
	raw    net.Conn
	frames *http2.Framer
	header bytes.Buffer
	coder  *hpack.Encoder
	next   uint32 // number of the next stream
	host   string

	writing sync.Mutex // a framer writes one frame at a time
	pongs   chan struct{}
	ended   chan struct{} // gets a value for each stream that the server ended, unless its buffer is full
}

// connect opens an HTTP/2 connection (RFC 9113). window is the flow-control window of each response, in bytes.
func connect(t testing.TB, s *site, window uint32) *attacker {
	t.Helper()
	return connectFrom(t, s, nil, window)
}

// connectFrom is like connect, from the local address from. If from is nil, the system chooses the address.
func connectFrom(t testing.TB, s *site, from net.IP, window uint32) *attacker {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}
	raw, err := tls.DialWithDialer(&dialer, "tcp", s.address, &tls.Config{RootCAs: s.roots, ServerName: "localhost", NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13})
	rig.Must(t, err)
	t.Cleanup(func() { _ = raw.Close() })
	a, err := newAttacker(raw, s.address, window)
	rig.Must(t, err)
	return a
}

// newAttacker begins HTTP/2 on a connection to the host.
func newAttacker(raw net.Conn, host string, window uint32) (*attacker, error) {
	a := &attacker{raw: raw, frames: http2.NewFramer(raw, raw), next: 1, host: host, pongs: make(chan struct{}, 1), ended: make(chan struct{}, 1<<10)}
	a.coder = hpack.NewEncoder(&a.header)
	if _, err := raw.Write([]byte(http2.ClientPreface)); err != nil {
		return nil, err
	}
	err := a.frames.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	go a.listen()
	return a, err
}

// listen responds to frames that require a response, and discards the others.
func (a *attacker) listen() {
	defer close(a.pongs)
	for {
		f, err := a.frames.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				a.writing.Lock()
				_ = a.frames.WriteSettingsAck()
				a.writing.Unlock()
			}
		case *http2.PingFrame:
			if f.IsAck() {
				a.pongs <- struct{}{}
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				a.streamEnded()
			}
		case *http2.RSTStreamFrame:
			a.streamEnded()
		}
	}
}

func (a *attacker) streamEnded() {
	select {
	case a.ended <- struct{}{}:
	default:
	}
}

// ask starts a request on a new stream. If complete is false, the body does not end. An error means that the server
// closed the connection.
func (a *attacker) ask(method, path string, body []byte, complete bool, headers ...string) (stream uint32, err error) {
	a.writing.Lock()
	defer a.writing.Unlock()
	stream = a.next
	a.next += 2
	a.header.Reset()
	fields := append([]string{":method", method, ":scheme", "https", ":authority", a.host, ":path", path}, headers...)
	for i := 0; i < len(fields); i += 2 {
		if err := a.coder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			return 0, err
		}
	}
	_ = a.raw.SetWriteDeadline(time.Now().Add(patience))
	err = a.frames.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: a.header.Bytes(), EndHeaders: true, EndStream: complete && body == nil,
	})
	if err == nil && body != nil {
		err = a.frames.WriteData(stream, complete, body)
	}
	return stream, err
}

// slowly opens an HTTP/1.1 connection and sends only the beginning of a request.
func slowly(t testing.TB, s *site, beginning string) *tls.Conn {
	t.Helper()
	raw, err := tls.Dial("tcp", s.address, &tls.Config{RootCAs: s.roots, ServerName: "localhost", NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS13})
	if err != nil {
		return nil
	}
	t.Cleanup(func() { _ = raw.Close() })
	_, _ = raw.Write([]byte(beginning))
	return raw
}

// arrived waits until the server has read all data or has closed the connection.
func (a *attacker) arrived() {
	a.writing.Lock()
	err := a.frames.WritePing(false, [8]byte{})
	a.writing.Unlock()
	if err == nil {
		<-a.pongs
	}
}

// readEverything grants a large flow-control window for all responses of the connection together.
func (a *attacker) readEverything() error {
	a.writing.Lock()
	defer a.writing.Unlock()
	return a.frames.WriteWindowUpdate(0, 1<<30)
}

func (a *attacker) reset(stream uint32) error {
	a.writing.Lock()
	defer a.writing.Unlock()
	return a.frames.WriteRSTStream(stream, http2.ErrCodeCancel)
}

// breakRules makes the server reset a stream: RFC 9113 section 6.9 forbids a window increment of 0.
func (a *attacker) breakRules(stream uint32) error {
	a.writing.Lock()
	defer a.writing.Unlock()
	return a.frames.WriteWindowUpdate(stream, 0)
}

func announced(path string, length int) string {
	return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(length) + "\r\n\r\n"
}
