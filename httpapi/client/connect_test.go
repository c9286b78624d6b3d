package client_test

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// An address that is silent, as that of a Pod that is gone, was sent nothing: the call is
// repeated, whatever it is, unless its caller waits no longer.
func TestASilentAddressIsTriedAgain(t *testing.T) {
	s := newStub(t)
	s.on("POST /api/keys/get", func(w http.ResponseWriter, _ *http.Request, _ int64) {
		_, _ = io.WriteString(w, `{"ttag":"aw==","algid":1,"algorithm":"a","keyBytes":1,"ivBytes":0,"detail":""}`)
	})
	var dials atomic.Int64
	fails := func(o *client.Options) {
		o.HTTPClient = &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				patience := time.Minute
				if dials.Add(1) <= 2 {
					patience = time.Nanosecond // nobody answers in that
				}
				return (&net.Dialer{Timeout: patience}).DialContext(ctx, network, address)
			},
		}}
	}
	if _, err := s.client(t, fails).GetKey(t.Context(), schema.KeyRequest{TTag: schema.HiddenLink("k")}); err != nil {
		t.Errorf("an address was silent twice: %v", err)
	}

	ctx, stop := context.WithCancel(t.Context())
	stop()
	dials.Store(0)
	if _, err := s.client(t, fails).GetKey(ctx, schema.KeyRequest{TTag: schema.HiddenLink("k")}); err == nil || dials.Load() > 1 {
		t.Errorf("nobody waits any more: %d connections, %v", dials.Load(), err)
	}
}

// A connection to a host that is gone without a word is given up, and the next call leads to
// whoever answers there now. Until then each call waits on it for its time.
func TestASilentConnectionIsGivenUp(t *testing.T) {
	t.Parallel() // it waits
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
				continue // it is lost
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
	rig.Soon(t, "somebody answers again", answered)
}
