package goclient

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// The client gives up a connection to a host that has disappeared. The next call connects to the host that now has the
// address. Until then, calls wait for their timeout.
func TestASilentConnectionIsGivenUp(t *testing.T) {
	t.Parallel() // the test mostly waits
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	var silent atomic.Pointer[net.Conn]
	var dialled atomic.Pointer[net.Conn]
	between, err := net.Listen("tcp", "127.0.0.1:0")
	rig.Must(t, err)
	defer between.Close()
	carry := func(to, from net.Conn, near net.Conn) {
		defer to.Close()
		for b := make([]byte, 4<<10); ; {
			n, err := from.Read(b)
			if err != nil {
				return
			}
			if gone := silent.Load(); gone != nil && *gone == near {
				continue // the data is lost
			}
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
	}
	go func() {
		for {
			near, err := between.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				return
			}
			dialled.Store(&near)
			go carry(far, near, near)
			go carry(near, far, near)
		}
	}()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	c, err := client.New(client.Options{BaseURL: "https://" + between.Addr().String(), RootCAs: roots, Timeout: time.Second, MaxRetries: -1})
	rig.Must(t, err)
	answered := func() bool {
		_, err := c.GetHealth(t.Context())
		var said *client.Error
		return errors.As(err, &said)
	}
	if !answered() {
		t.Fatal("nobody answers before anything has happened")
	}
	silent.Store(dialled.Load())
	if answered() {
		t.Fatal("what is lost was answered")
	}
	rig.Soon(t, "a server responds again", answered)
}

// A server that ends a connection names the requests that it did not process (RFC 9113 6.8). The client sends all of
// them again over another connection, if it can read their message again.
func TestARequestThatTheServerDidNotTake(t *testing.T) {
	var answered []string
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/crypto/mac", func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		answered = append(answered, string(b))
		_, _ = io.WriteString(w, `{"lineage":"aw==","ttag":"aw==","algorithm":"HmacSHA384","mac":"AA==","detail":""}`)
	})
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true
	ends := &firstEnds{Listener: server.Listener, takes: func(conn net.Conn) {
		takeNothing(t, tls.Server(conn, &tls.Config{Certificates: server.TLS.Certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13}))
	}}
	server.Listener = ends
	server.StartTLS()
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())

	message := strings.NewReader("before|the message")
	_, err := message.Seek(int64(len("before|")), io.SeekStart)
	rig.Must(t, err)
	want := `{"lineage":"aw==","data":"` + base64.StdEncoding.EncodeToString([]byte("the message")) + `"}`
	for name, of := range map[string]struct {
		message io.Reader
		says    string
	}{
		"a message that seeks": {message: message},
		"one that does not":    {message: io.LimitReader(strings.NewReader("the message"), 99), says: "cannot be sent again"},
	} {
		ends.before.Store(false)
		answered = nil
		c, err := client.New(client.Options{BaseURL: server.URL, RootCAs: roots, Credentials: client.HeldSession("session", nil), MaxRetries: -1})
		rig.Must(t, err)
		_, err = c.MAC(t.Context(), schema.HiddenLink("k"), of.message)
		c.CloseIdleConnections()
		switch {
		case of.says == "":
			if err != nil || !slices.Equal(answered, []string{want}) {
				t.Errorf("%s: %v, and the server took %q, want %q", name, err, answered, want)
			}
		case err == nil || !strings.Contains(err.Error(), of.says) || answered != nil:
			t.Errorf("%s: %v, and the server took %q", name, err, answered)
		}
	}
}

// firstEnds is a listener that handles the first connection itself.
type firstEnds struct {
	net.Listener
	before atomic.Bool // the first connection was accepted
	takes  func(net.Conn)
}

func (l *firstEnds) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil || l.before.Swap(true) {
			return conn, err
		}
		go l.takes(conn)
	}
}

// takeNothing reads a request to its end, and reports that the server processed none.
func takeNothing(t *testing.T, conn *tls.Conn) {
	defer conn.Close()
	if _, err := io.CopyN(io.Discard, conn, int64(len(http2.ClientPreface))); err != nil {
		t.Error(err)
		return
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Error(err)
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Error(err)
			return
		}
		if data, is := frame.(*http2.DataFrame); is && data.StreamEnded() {
			break
		}
	}
	if err := framer.WriteGoAway(0, http2.ErrCodeNo, nil); err != nil {
		t.Error(err)
	}
	_, _ = io.Copy(io.Discard, conn) // until the client has closed the connection
}
