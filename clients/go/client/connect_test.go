package client_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// No data was sent to an address that does not respond, such as that of a deleted Pod. So any call is retried until the
// context of the caller ends.
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
					patience = time.Nanosecond // too short for any response
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
