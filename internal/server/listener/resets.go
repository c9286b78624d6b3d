package listener

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"golang.org/x/time/rate"
)

const (
	// resetsPerSecond and resetsAtOnce limit how many streams of one HTTP/2 connection the server may reset because the
	// client violates the protocol. A correct client causes no such resets.
	resetsPerSecond = 10
	resetsAtOnce    = 100
	// stallTime is how long a client may read nothing while the server has frames to send. After that time, the server
	// closes the connection. The deadline of a request would end only the request's stream.
	stallTime = 15 * time.Second
	// farewellTime is the time limit for sending the GOAWAY frame before a connection is closed.
	farewellTime = time.Second
)

// ResetGuard closes HTTP/2 connections whose clients make the server reset streams (MadeYouReset,
// CVE-2025-8671). The server still processes the request of a reset stream, but the request no longer counts as
// one of the connection's concurrent streams.
type ResetGuard struct {
	perSecond rate.Limit
	atOnce    int
	stall     time.Duration
	closed    prometheus.Counter
	logger    *slog.Logger
	say       rate.Sometimes
}

// NewResetGuard returns a guard that counts the connections that it closes.
func NewResetGuard(closed prometheus.Counter, logger *slog.Logger) *ResetGuard {
	return &ResetGuard{perSecond: resetsPerSecond, atOnce: resetsAtOnce, stall: stallTime, closed: closed, logger: logger, say: rate.Sometimes{First: 1, Interval: sayEvery}}
}

// Configure makes srv serve HTTP/2 over guarded TLS connections, each with up to streams concurrent streams. It uses
// the HTTP/2 server of golang.org/x/net, because the server of net/http requires a *tls.Conn. The ConnState function of
// srv gets guarded connections; use Unguarded to get the TLS connection.
func (g *ResetGuard) Configure(srv *http.Server, streams int, idle time.Duration) error {
	srv.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
	h2 := &http2.Server{IdleTimeout: idle, WriteByteTimeout: g.stall} //nolint:staticcheck // deprecated in favor of net/http, which does not accept guarded connections
	if err := http2.ConfigureServer(srv, h2); err != nil {            //nolint:staticcheck // as above
		return err
	}
	srv.TLSNextProto[http2.NextProtoTLS] = func(srv *http.Server, conn *tls.Conn, handler http.Handler) {
		guarded := &guardedConn{Conn: conn, guard: g, allowed: rate.NewLimiter(g.perSecond, g.atOnce), recent: make([]uint32, streams)}
		opts := &http2.ServeConnOpts{BaseConfig: srv, Handler: handler} //nolint:staticcheck // as above
		if base, ok := handler.(interface{ BaseContext() context.Context }); ok {
			opts.Context = base.BaseContext() // the base context of net/http, with the values of ConnContext
		}
		h2.ServeConn(guarded, opts) //nolint:staticcheck // as above
	}
	return nil
}

// Unguarded returns the TLS connection inside a guarded one. It returns any other connection unchanged.
func Unguarded(conn net.Conn) net.Conn {
	if guarded, ok := conn.(*guardedConn); ok {
		return guarded.Conn
	}
	return conn
}

// guardedConn counts the RST_STREAM frames that the server writes. The HTTP/2 server never calls Write concurrently.
type guardedConn struct {
	*tls.Conn
	guard   *ResetGuard
	allowed *rate.Limiter
	scan    resetScanner
	// recent contains the streams that were reset last. A client may send DATA frames before it receives the reset, and
	// the server resets the stream again for each such frame. The length of recent is the number of streams that a
	// client may have open, because the client may not know about the resets yet.
	recent []uint32
	next   int
}

func (c *guardedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		return n, err
	}
	var last uint32
	c.scan.write(p, func(stream uint32, code http2.ErrCode) {
		if c.provoked(stream, code) && !c.allowed.Allow() {
			last = stream
		}
	})
	if last == 0 {
		return n, nil
	}
	c.hangUp(last)
	return n, net.ErrClosed
}

// provoked reports whether a reset is the first reset of its stream, and a protocol violation of the client caused it.
func (c *guardedConn) provoked(stream uint32, code http2.ErrCode) bool {
	if slices.Contains(c.recent, stream) {
		return false
	}
	c.recent[c.next] = stream
	c.next = (c.next + 1) % len(c.recent)
	switch code {
	case http2.ErrCodeNo, // the server responded before the body was complete
		http2.ErrCodeInternal,      // an error of the server
		http2.ErrCodeRefusedStream: // the client does not know the limit of concurrent streams yet
		return false
	default:
		return true
	}
}

func (c *guardedConn) hangUp(last uint32) {
	if c.scan.between() {
		_ = c.SetWriteDeadline(time.Now().Add(farewellTime))
		_ = http2.NewFramer(c.Conn, nil).WriteGoAway(last, http2.ErrCodeEnhanceYourCalm, nil)
	}
	_ = c.Conn.NetConn().Close()
	c.guard.closed.Inc()
	c.guard.say.Do(func() {
		c.guard.logger.Warn("closed an HTTP/2 connection because its client caused too many resets of streams",
			"remote", c.RemoteAddr().String(), "perSecond", float64(c.guard.perSecond), "atOnce", c.guard.atOnce)
	})
}

// Sizes of frames (RFC 9113 sections 4.1 and 6.4).
const (
	frameHeaderLen = 9
	resetFrameLen  = frameHeaderLen + 4
)

// resetScanner finds RST_STREAM frames in the output of an HTTP/2 server.
type resetScanner struct {
	frame [resetFrameLen]byte // header of the current frame, with the payload of RST_STREAM
	have  int                 // bytes of frame that are read
	skip  int                 // remaining payload bytes of a frame of another type
}

// between reports whether the output ends at the end of a frame.
func (s *resetScanner) between() bool { return s.have == 0 && s.skip == 0 }

func (s *resetScanner) write(p []byte, found func(stream uint32, code http2.ErrCode)) {
	for len(p) > 0 {
		if s.skip > 0 {
			n := min(s.skip, len(p))
			s.skip, p = s.skip-n, p[n:]
			continue
		}
		n := copy(s.frame[s.have:s.wanted()], p)
		s.have, p = s.have+n, p[n:]
		if s.have < s.wanted() {
			continue
		}
		if s.reset() {
			found(binary.BigEndian.Uint32(s.frame[5:])&(1<<31-1), http2.ErrCode(binary.BigEndian.Uint32(s.frame[frameHeaderLen:])))
		} else {
			s.skip = int(s.frame[0])<<16 | int(s.frame[1])<<8 | int(s.frame[2])
		}
		s.have = 0
	}
}

// wanted returns how many bytes of the current frame are needed.
func (s *resetScanner) wanted() int {
	if s.have >= frameHeaderLen && s.reset() {
		return resetFrameLen
	}
	return frameHeaderLen
}

func (s *resetScanner) reset() bool { return http2.FrameType(s.frame[3]) == http2.FrameRSTStream }
