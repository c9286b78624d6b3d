package sink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/migrated"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/inbox"
	"github.com/keyserver-operator/keyserver-operator/test/rig/rsyslog"
)

// arrived returns the lines that rsyslog has parsed and written.
func arrived(t *testing.T, s *rsyslog.Server) *inbox.Inbox {
	t.Helper()
	in := &inbox.Inbox{}
	for _, line := range s.Lines(t) {
		if line.Host != "keys-of-all" || line.App != "keyserver" || line.ID != "row" && line.ID != "seal" || line.Priority != "109" && line.Priority != "108" {
			t.Fatalf("a message of %+v", line)
		}
		rig.Must(t, in.Take([]byte(line.Message)))
	}
	return in
}

func awaitProven(t *testing.T, key note.Verifier, upTo int64, in func() *inbox.Inbox) {
	t.Helper()
	rig.Succeeds(t, func() error {
		proven, err := in().Proven(key)
		if proven < upTo {
			return fmt.Errorf("%d of %d: %w", proven, upTo, errors.Join(err, errors.New("not yet")))
		}
		return err
	})
}

// TestRsyslogThatIsKilled checks that rsyslog has each row that it has acknowledged, even if it is killed at a random
// time.
func TestRsyslogThatIsKilled(t *testing.T) {
	w := newTrail(t, sqlstore.Config{Dir: migrated.Dir(t)}, newSigner(t))
	server := rsyslog.Start(t, "ossl")
	background(t, New(w.config(t), target(t, server.URL)).Run)
	for range 10 {
		w.write(t, 300)
		time.Sleep(rand.N(400 * time.Millisecond)) // during or between deliveries
		server.Kill()
		w.write(t, 100)
		server.Restart(t)
	}
	awaitProven(t, w.tree.Signer.Verifier, 4000, func() *inbox.Inbox { return arrived(t, server) })
	t.Logf("%d rows came twice", arrived(t, server).Duplicates)
}

// TestAnEndThatNobodyVouchesFor checks that the end of a connection without close_notify is no acknowledgement: an
// attacker on the network could end the connection in the same way. rsyslog's GnuTLS driver sends no close_notify.
func TestAnEndThatNobodyVouchesFor(t *testing.T) {
	w := newTrail(t, sqlstore.Config{Dir: migrated.Dir(t)}, newSigner(t))
	w.write(t, 3)
	server := rsyslog.Start(t, "gtls")
	open, err := openSyslog(target(t, server.URL), Source{ServerName: "keys of all"})
	rig.Must(t, err)
	if err := open.send(t.Context(), w.batch(t)); err == nil || !strings.Contains(err.Error(), "close_notify") {
		t.Error(err)
	}
}

// TestRsyslogThatIsNotOurs checks that an untrusted rsyslog gets no data, and that a missing client certificate is
// reported.
func TestRsyslogThatIsNotOurs(t *testing.T) {
	w := newTrail(t, sqlstore.Config{Dir: migrated.Dir(t)}, newSigner(t))
	w.write(t, 3)
	server, other := rsyslog.Start(t, "ossl"), rsyslog.Start(t, "ossl")
	_, certificates, _ := strings.Cut(other.URL, "?")
	ca, _, _ := strings.Cut(server.URL, "&")
	for url, says := range map[string]string{
		"syslog+tls://" + server.Address + "?" + certificates: "certificate is not trusted",
		ca: "", // without a client certificate
	} {
		open, err := openSyslog(target(t, url), Source{ServerName: "keys of all"})
		rig.Must(t, err)
		if err := open.send(t.Context(), w.batch(t)); err == nil || !strings.Contains(err.Error(), says) {
			t.Error(err)
		} else {
			t.Log(err)
		}
	}
	if lines := server.Lines(t); len(lines) > 0 {
		t.Errorf("%d messages were taken", len(lines))
	}
}

// TestSyslogThatLies checks that none of these responses is an acknowledgement.
func TestSyslogThatLies(t *testing.T) {
	w := newTrail(t, sqlstore.Config{Dir: migrated.Dir(t)}, newSigner(t))
	w.write(t, 60) // more than the receiver reads at once
	b := w.batch(t)
	receiver := newWeb(t) // only its certificate is used
	_, certificates, _ := strings.Cut(receiver.url, "?")
	ca, _, _ := strings.Cut(certificates, "&")
	for name, c := range map[string]struct {
		does func(*tls.Conn)
		says string
	}{
		"goes in between":     {func(conn *tls.Conn) { _, _ = conn.Read(make([]byte, 10)); time.Sleep(100 * time.Millisecond) }, ""},
		"goes without a word": {func(conn *tls.Conn) { _, _ = io.Copy(io.Discard, conn); _ = conn.NetConn().Close() }, "close_notify"},
		"talks":               {func(conn *tls.Conn) { _, _ = io.Copy(io.Discard, conn); _, _ = conn.Write([]byte("250 OK")) }, "it sends a response"},
		"never ends":          {func(conn *tls.Conn) { _, _ = io.Copy(io.Discard, conn); <-t.Context().Done() }, "in time"},
		"does not read":       {func(*tls.Conn) { <-t.Context().Done() }, "in time"},
	} {
		listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: receiver.TLS.Certificates})
		rig.Must(t, err)
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			if err := conn.(*tls.Conn).HandshakeContext(t.Context()); err == nil {
				c.does(conn.(*tls.Conn))
			}
		}()
		open, err := openSyslog(target(t, "syslog+tls://"+listener.Addr().String()+"?"+ca), Source{ServerName: "keys"})
		rig.Must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := open.send(ctx, b); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		rig.Must(t, listener.Close())
	}
}
