package strangers

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
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
func (s sender) sendStreams(conn io.ReadWriter, answered func()) error {
	var packet, header bytes.Buffer
	packet.WriteString(http2.ClientPreface)
	frames, fields := http2.NewFramer(&packet, conn), hpack.NewEncoder(&header)
	errs := []error{frames.WriteSettings(), frames.WriteWindowUpdate(0, 1<<30)}
	for stream := uint32(1); ; {
		for range s.Packet {
			header.Reset()
			for _, field := range [][2]string{{":method", s.Method}, {":scheme", "https"}, {":authority", "localhost"}, {":path", s.Path}} {
				errs = append(errs, fields.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
			}
			errs = append(errs, frames.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: header.Bytes(), EndHeaders: true, EndStream: true}))
			stream += 2
		}
		_, err := packet.WriteTo(conn)
		if err := errors.Join(append(errs, err)...); err != nil {
			return err
		}
		errs = nil
		for open := s.Packet; open > 0; {
			frame, err := frames.ReadFrame()
			if err != nil {
				return err
			}
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if !frame.IsAck() {
					errs = append(errs, frames.WriteSettingsAck())
				}
			case *http2.HeadersFrame:
				if frame.StreamEnded() {
					open--
					answered()
				}
			case *http2.DataFrame:
				if frame.StreamEnded() {
					open--
					answered()
				}
			case *http2.RSTStreamFrame:
				open--
			}
		}
	}
}
