package client_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// A call is not retried if a peer may have counted a use of the key. After every other refusal that permits a retry, it
// is retried.
func TestUsesAreNotRepeatedAtAPeer(t *testing.T) {
	link := schema.HiddenLink("k")
	unavailable := `{"code":"PEER_UNAVAILABLE","detail":"d","retryable":true,"scope":"process"}`
	calls := map[string]struct {
		call func(*client.Client) error
		uses bool
	}{
		"POST /api/keys/authorize": {func(c *client.Client) error {
			_, err := c.AuthorizeKey(t.Context(), schema.AuthorizeKeyRequest{TTag: link})
			return err
		}, true},
		"POST /api/crypto/hmac": {func(c *client.Client) error {
			_, err := c.HMAC(t.Context(), link, bytes.NewReader([]byte("text")))
			return err
		}, true},
		"POST /api/keys/get": {func(c *client.Client) error {
			_, err := c.GetKey(t.Context(), schema.KeyRequest{TTag: link})
			return err
		}, false},
	}
	for route, tc := range calls {
		for said, want := range map[string]int64{unavailable: 1, retryable: 2} {
			if !tc.uses {
				want = 2
			}
			t.Run(route, func(t *testing.T) {
				s := newStub(t)
				s.on(route, func(w http.ResponseWriter, _ *http.Request, n int64) {
					if n == 1 {
						fail(w, 503, said)
						return
					}
					_, _ = io.WriteString(w, `{"authorized":true,"systemId":1,"filenameAudited":false,"hmac":"AA==","ttag":"aw==","algid":1,"algorithm":"a","keyBytes":1,"ivBytes":0}`)
				})
				err := tc.call(s.client(t))
				if n := s.calls.Load(); n != want || (err == nil) != (want > 1) {
					t.Errorf("after %s: asked %d times, want %d: %v", said, n, want, err)
				}
				if want == 1 && !client.IsCode(err, "PEER_UNAVAILABLE") {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}
