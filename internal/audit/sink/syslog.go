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

// syslog sends messages of RFC 5424 over TLS (RFC 5425), each with an event as JSON.
//
// Nothing of syslog acknowledges a message. But a receiver answers the end of a
// connection (close_notify, RFC 5425 section 4.4) only after it has read what came
// before. So each batch has a connection of its own, and that answer, which nobody on
// the way can forge, acknowledges it. A receiver that ends a connection of itself, with
// a last piece read and not looked at, would acknowledge that, too; it sees by the seal
// that rows lack.
type syslog struct {
	address string
	host    string // of our server, as a message has it
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

// send leaves no connection behind.
func (s *syslog) send(ctx context.Context, b *batch) error {
	list, err := b.messages()
	if err != nil {
		return err
	}
	raw, err := (&net.Dialer{Timeout: dialTime}).DialContext(ctx, "tcp", s.address)
	if err != nil {
		return plain(err)
	}
	defer raw.Close() // what counts has been answered
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	tcp, _ := raw.(*net.TCPConn)
	if err := s.exchange(ctx, &watched{TCPConn: tcp}, list); err != nil {
		if ctx.Err() != nil {
			return errSlow
		}
		return err
	}
	return nil
}

func (s *syslog) exchange(ctx context.Context, raw *watched, list []message) error {
	conn := tls.Client(raw, s.config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return plain(err)
	}
	out := bufio.NewWriterSize(conn, 16<<10)
	for i := range list {
		text := s.message(&list[i])
		if _, err := fmt.Fprintf(out, "%d %s", len(text), text); err != nil {
			return plain(err)
		}
	}
	if err := out.Flush(); err != nil {
		return plain(err)
	}
	if err := errors.Join(conn.CloseWrite(), raw.CloseWrite()); err != nil {
		return plain(err)
	}
	switch n, err := conn.Read(make([]byte, 1)); {
	case n > 0:
		return errors.New("it answers, which a receiver of syslog does not")
	case raw.ended:
		return errors.New("it ends the connection without saying so in TLS (close_notify), so that nobody knows what it has read")
	case !errors.Is(err, io.EOF):
		return plain(err)
	}
	// Who ends a connection of which he has not read all resets it.
	if _, err := raw.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return errors.New("it has ended the connection before it had read all of it")
	}
	return nil
}

// watched knows whether the other side has ended the connection below TLS, which
// package tls takes for an end of its own.
type watched struct {
	*net.TCPConn
	ended bool
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.TCPConn.Read(p)
	if errors.Is(err, io.EOF) {
		w.ended = true
	}
	return n, err
}

// message is a row as RFC 5424 has it: facility 13 (log audit), and row or seal as the
// kind of message. Refused and failed is a warning.
func (s *syslog) message(m *message) string {
	severity := severityNotice
	if m.SeverityID > 1 {
		severity = severityWarn
	}
	return fmt.Sprintf("<%d>1 %s %s %s - %s - %s", facilityAudit*8+severity,
		time.UnixMicro(m.micros).UTC().Format("2006-01-02T15:04:05.000000Z"), s.host, appName, m.kind, m.json)
}

func (s *syslog) close() {}

// printable is a name as a header of RFC 5424 may have it.
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
