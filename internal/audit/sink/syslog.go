package sink

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// syslog sends RFC 5424 messages over TLS (RFC 5425). Each message contains an event as JSON.
//
// Syslog does not acknowledge messages. But when the sender closes a connection, a receiver responds (close_notify, RFC
// 5425 section 4.4) only after it has read all bytes. So each batch uses its own connection, and this response
// acknowledges the batch. An attacker on the network cannot forge the response. If a receiver closes the connection
// without processing the last bytes that it has read, these bytes count as acknowledged, too. The next seal then shows
// the receiver that rows are missing.
type syslog struct {
	address string
	host    string // the host name of this server in messages
	config  *tls.Config
}

const (
	facilityAudit  = 13
	severityWarn   = 4
	severityNotice = 5
	appName        = "keyserver"
)

func openSyslog(t Target, source Source) (*syslog, error) {
	config, err := t.tls()
	if err != nil {
		return nil, err
	}
	config.ServerName, _, _ = net.SplitHostPort(t.address)
	return &syslog{address: t.address, host: printable(source.ServerName), config: config}, nil
}

// send opens a connection for the batch and closes it at the end.
func (s *syslog) send(ctx context.Context, b *batch) error {
	list, err := b.messages()
	if err != nil {
		return err
	}
	raw, err := (&net.Dialer{Timeout: dialTime}).DialContext(ctx, "tcp", s.address)
	if err != nil {
		return sanitizeError(err)
	}
	defer raw.Close() // the response has been read by then
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	tcp, _ := raw.(*net.TCPConn)
	if err := s.exchange(ctx, &closeDetector{TCPConn: tcp}, list); err != nil {
		if ctx.Err() != nil {
			return errSlow
		}
		return err
	}
	return nil
}

func (s *syslog) exchange(ctx context.Context, raw *closeDetector, list []message) error {
	conn := tls.Client(raw, s.config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return sanitizeError(err)
	}
	out := bufio.NewWriterSize(conn, 16<<10)
	for i := range list {
		text := s.message(&list[i])
		if _, err := fmt.Fprintf(out, "%d %s", len(text), text); err != nil {
			return sanitizeError(err)
		}
	}
	if err := out.Flush(); err != nil {
		return sanitizeError(err)
	}
	if err := errors.Join(conn.CloseWrite(), raw.CloseWrite()); err != nil {
		return sanitizeError(err)
	}
	switch n, err := conn.Read(make([]byte, 1)); {
	case n > 0:
		return errors.New("it sends a response, which no syslog receiver does")
	case raw.ended:
		return errors.New("it closes the connection without a TLS close_notify, so it may not have read all rows")
	case !errors.Is(err, io.EOF):
		return sanitizeError(err)
	}
	// If a peer closes a connection before it has read all bytes, TCP resets the connection.
	if _, err := raw.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return errors.New("it closes the connection before it has read all rows")
	}
	return nil
}

// closeDetector records whether the peer has closed the TCP connection. Package tls does not distinguish this from a
// close_notify.
type closeDetector struct {
	*net.TCPConn
	ended bool
}

func (w *closeDetector) Read(p []byte) (int, error) {
	n, err := w.TCPConn.Read(p)
	if errors.Is(err, io.EOF) {
		w.ended = true
	}
	return n, err
}

// message returns an event as an RFC 5424 message: the facility is 13 (log audit), the MSGID is row or seal. Refused
// and failed operations have the severity warning.
func (s *syslog) message(m *message) string {
	severity := severityNotice
	if m.SeverityID > 1 {
		severity = severityWarn
	}
	return fmt.Sprintf("<%d>1 %s %s %s - %s - %s", facilityAudit*8+severity,
		time.UnixMicro(m.micros).UTC().Format("2006-01-02T15:04:05.000000Z"), s.host, appName, m.kind, m.json)
}

func (s *syslog) close() {}

// printable returns a name that is valid in a header of RFC 5424.
func printable(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < '!' || r > '~' {
			return '-'
		}
		return r
	}, name)
	if name == "" {
		return "-"
	}
	return name[:min(len(name), 255)]
}
