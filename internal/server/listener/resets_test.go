package listener

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// guarded serves a handler over guarded connections. Each connection may cause as many resets as the argument resets.
func guarded(t testing.TB, resets int, handler http.HandlerFunc, adjust ...func(*ResetGuard, *http.Server)) (*httptest.Server, *ResetGuard) {
	t.Helper()
	g := NewResetGuard(prometheus.NewCounter(prometheus.CounterOpts{Name: "closed"}), slog.New(slog.DiscardHandler))
	g.perSecond, g.atOnce = 0, resets
	s := httptest.NewUnstartedServer(handler)
	for _, f := range adjust {
		f(g, s.Config)
	}
	rig.Must(t, g.Configure(s.Config, 128, time.Minute))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, g
}

// rude is a client that can send any HTTP/2 frames.
type rude struct {
	conn   *tls.Conn
	frames *http2.Framer
	header bytes.Buffer
	coder  *hpack.Encoder
	heard  chan http2.FrameHeader // received frames of streams, and pings; closed with the connection
}

// dialRude connects a client. It sends only the HTTP/2 preface and reads nothing.
func dialRude(t testing.TB, s *httptest.Server) *rude {
	t.Helper()
	conn, err := tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{RootCAs: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "example.com", NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13})
	rig.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	rig.Must(t, conn.SetDeadline(time.Now().Add(rig.Patience)))
	r := &rude{conn: conn, frames: http2.NewFramer(conn, conn), heard: make(chan http2.FrameHeader, 1<<16)}
	r.frames.AllowIllegalWrites = true
	r.coder = hpack.NewEncoder(&r.header)
	_, err = io.WriteString(conn, http2.ClientPreface)
	rig.Must(t, err)
	return r
}

func newRude(t testing.TB, s *httptest.Server) *rude {
	t.Helper()
	r := dialRude(t, s)
	rig.Must(t, r.frames.WriteSettings())
	rig.Must(t, r.frames.WriteSettingsAck())
	go func() {
		defer close(r.heard)
		for {
			f, err := r.frames.ReadFrame()
			if err != nil {
				return
			}
			if f.Header().StreamID != 0 || f.Header().Type == http2.FramePing {
				r.heard <- f.Header()
			}
		}
	}()
	return r
}

func (r *rude) headers(stream uint32, length int, complete bool) error {
	r.header.Reset()
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "https"}, {":authority", "example.com"}, {":path", "/"}, {"content-length", strconv.Itoa(length)},
	} {
		if err := r.coder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			return err
		}
	}
	return r.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: r.header.Bytes(), EndHeaders: true, EndStream: complete})
}

// await reads until a frame that ends the stream.
func (r *rude) await(t testing.TB, stream uint32) {
	t.Helper()
	for f := range r.heard {
		if f.StreamID == stream && (f.Type == http2.FrameRSTStream || f.Type != http2.FrameWindowUpdate && f.Flags.Has(http2.FlagDataEndStream)) {
			return
		}
	}
	t.Fatalf("the connection was closed before stream %d ended", stream)
}

// TestResetsThatAClientProvokes checks each way in which a client can make the server reset streams. Its connection
// must be closed, and other clients must still be served.
func TestResetsThatAClientProvokes(t *testing.T) {
	const enough = 2000
	for name, provoke := range map[string]func(r *rude, stream uint32) error{
		"WINDOW_UPDATE of 0":              func(r *rude, stream uint32) error { return r.frames.WriteWindowUpdate(stream, 0) },
		"WINDOW_UPDATE beyond the window": func(r *rude, stream uint32) error { return r.frames.WriteWindowUpdate(stream, 1<<31-1) },
		"HEADERS after the end":           func(r *rude, stream uint32) error { return r.headers(stream, 0, true) },
		"DATA after the end":              func(r *rude, stream uint32) error { return r.frames.WriteData(stream, true, []byte("more")) },
		"PRIORITY that depends on itself": func(r *rude, stream uint32) error {
			return r.frames.WritePriority(stream, http2.PriorityParam{StreamDep: stream})
		},
		"PRIORITY of a wrong length": func(r *rude, stream uint32) error {
			return r.frames.WriteRawFrame(http2.FramePriority, 0, stream, []byte("abc"))
		},
		"RST_STREAM of a wrong length": func(r *rude, stream uint32) error {
			return r.frames.WriteRawFrame(http2.FrameRSTStream, 0, stream, []byte("abc"))
		},
		"more DATA than the content-length": nil,
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var atWork []chan struct{}
			s, _ := guarded(t, resetsAtOnce, func(_ http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Content-Length") == "" {
					return // a request of the correct client
				}
				done := make(chan struct{}) // closed when 50 more requests have begun, because a reset by the server does not end the context
				mu.Lock()
				if atWork = append(atWork, done); len(atWork) > 50 {
					close(atWork[0])
					atWork = atWork[1:]
				}
				mu.Unlock()
				select {
				case <-done:
				case <-r.Context().Done():
				}
			})
			honest := s.Client()
			r := newRude(t, s)
			var err error
			streams := 0
			for ; streams < enough && err == nil; streams++ {
				stream := uint32(2*streams + 1)
				if provoke == nil {
					err = r.headers(stream, 1, false)
					if err == nil {
						err = r.frames.WriteData(stream, true, []byte("more"))
					}
					continue
				}
				if err = r.headers(stream, 0, true); err == nil {
					err = provoke(r, stream)
				}
			}
			_ = r.frames.WritePing(false, [8]byte{})
			for f := range r.heard { // until the server closes the connection
				if f.Type == http2.FramePing {
					t.Fatalf("the connection is still open after %d streams", streams)
				}
			}
			resp, err := honest.Get(s.URL)
			if err != nil {
				t.Fatalf("an honest client: %v", err)
			}
			_ = resp.Body.Close()
			if resp.ProtoMajor != 2 || resp.StatusCode != http.StatusOK {
				t.Errorf("an honest client: %s %s", resp.Proto, resp.Status)
			}
		})
	}
}

// TestBodiesThatTheServerDoesNotWant checks that the connection stays open if the server resets streams because it does
// not read their body, even if the client sends more frames of that body.
func TestBodiesThatTheServerDoesNotWant(t *testing.T) {
	s, g := guarded(t, 1, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusRequestEntityTooLarge) })
	r := newRude(t, s)
	for stream := uint32(1); stream < 400; stream += 2 {
		rig.Must(t, r.headers(stream, 1<<20, false))
		r.await(t, stream)
		for range 5 {
			rig.Must(t, r.frames.WriteData(stream, false, []byte("on its way")))
		}
	}
	rig.Must(t, r.headers(401, 0, true))
	r.await(t, 401)
	if closed := testutil.ToFloat64(g.closed); closed != 0 {
		t.Errorf("%v connections were closed", closed)
	}
}

// TestClientThatReadsNothing checks that the server closes a connection whose client keeps the TCP window closed, so
// that not even the end of a stream can be sent.
func TestClientThatReadsNothing(t *testing.T) {
	failed, closed := make(chan struct{}), make(chan struct{})
	s, _ := guarded(t, resetsAtOnce, func(w http.ResponseWriter, _ *http.Request) {
		part := make([]byte, 1<<20)
		for {
			if _, err := w.Write(part); err != nil {
				close(failed)
				return
			}
		}
	}, func(g *ResetGuard, srv *http.Server) {
		g.stall = 100 * time.Millisecond
		srv.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				close(closed)
			}
		}
	})
	r := dialRude(t, s)
	rig.Must(t, r.frames.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1}))
	rig.Must(t, r.frames.WriteWindowUpdate(0, 1<<30))
	rig.Must(t, r.headers(1, 0, true))
	for what, done := range map[string]chan struct{}{"the answer": failed, "the connection": closed} {
		select {
		case <-done:
		case <-time.After(rig.Patience):
			t.Errorf("%s has not ended", what)
		}
	}
}

// TestResetScanner checks that the scanner finds resets regardless of how the frames are split.
func TestResetScanner(t *testing.T) {
	var text bytes.Buffer
	f := http2.NewFramer(&text, nil)
	rig.Must(t, f.WriteSettings())
	rig.Must(t, f.WriteRSTStream(1, http2.ErrCodeProtocol))
	rig.Must(t, f.WriteData(3, true, bytes.Repeat([]byte{3}, 300)))
	rig.Must(t, f.WriteRSTStream(5, http2.ErrCodeNo))
	rig.Must(t, f.WriteRSTStream(7, http2.ErrCodeFlowControl))
	type reset struct {
		stream uint32
		code   http2.ErrCode
	}
	for size := 1; size <= text.Len(); size++ {
		var scan resetScanner
		var found []reset
		for rest := text.Bytes(); len(rest) > 0; {
			part := rest[:min(size, len(rest))]
			rest = rest[len(part):]
			scan.write(part, func(stream uint32, code http2.ErrCode) { found = append(found, reset{stream, code}) })
		}
		want := []reset{{1, http2.ErrCodeProtocol}, {5, http2.ErrCodeNo}, {7, http2.ErrCodeFlowControl}}
		if len(found) != len(want) || found[0] != want[0] || found[1] != want[1] || found[2] != want[2] || !scan.between() {
			t.Errorf("in parts of %d bytes: %v", size, found)
		}
	}
}

// FuzzFrames sends random bytes after the preface, concurrently with a correct client.
func FuzzFrames(f *testing.F) {
	s, _ := guarded(f, resetsAtOnce, func(http.ResponseWriter, *http.Request) {})
	frame := func(write func(*http2.Framer) error) []byte {
		var text bytes.Buffer
		fr := http2.NewFramer(&text, nil)
		fr.AllowIllegalWrites = true
		rig.Must(f, write(fr))
		return text.Bytes()
	}
	headers := frame(func(fr *http2.Framer) error {
		return fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82, 0x87, 0x84}, EndHeaders: true, EndStream: true}) // GET https /
	})
	f.Add(append(bytes.Clone(headers), frame(func(fr *http2.Framer) error { return fr.WriteWindowUpdate(1, 0) })...))
	f.Add(append(bytes.Clone(headers), frame(func(fr *http2.Framer) error { return fr.WriteData(1, true, []byte("x")) })...))
	f.Add(append(bytes.Clone(headers), frame(func(fr *http2.Framer) error { return fr.WriteGoAway(1, http2.ErrCodeNo, nil) })...))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := newRude(t, s)
		_, _ = r.conn.Write(data)
		resp, err := s.Client().Get(s.URL)
		if err != nil {
			t.Fatalf("an honest client: %v", err)
		}
		_ = resp.Body.Close()
		_ = r.conn.Close()
		for range r.heard { // until the connection is closed
		}
	})
}
