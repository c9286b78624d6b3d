package client_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
)

// A key server that restarts after a crash refuses proofs of the second before. Its Date header has no fraction, so a
// response at the end of a second must not date later proofs one second back.
func TestADateIsAWholeSecond(t *testing.T) {
	second := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	for _, tc := range []struct {
		here, later time.Duration // of the client's clock: at the refusal, and at the next attempt
		want        time.Duration // iat of the next attempt
	}{
		{here: 990 * time.Millisecond, later: 1800 * time.Millisecond, want: time.Second},
		{here: 0, later: 1010 * time.Millisecond, want: time.Second},
		{here: -time.Hour, later: -time.Hour + 1010*time.Millisecond, want: time.Second},
		{here: time.Hour, later: time.Hour + 1010*time.Millisecond, want: 2 * time.Second},
	} {
		stub := newStub(t)
		var issued time.Time
		var refused atomic.Pointer[time.Time]
		stub.on("GET /api/roles", func(w http.ResponseWriter, r *http.Request, n int64) {
			if n == 1 {
				at := time.Now()
				refused.Store(&at)
				w.Header().Set("Date", second.Format(http.TimeFormat))
				fail(w, 401, `{"code":"PROOF_STALE","detail":"d","reauth":false}`)
				return
			}
			payload, err := base64.RawURLEncoding.DecodeString(strings.Split(r.Header.Get("DPoP"), ".")[1])
			var claims struct{ IAT int64 }
			if err == nil {
				err = json.Unmarshal(payload, &claims)
			}
			if err != nil {
				t.Error(err)
			}
			issued = time.Unix(claims.IAT, 0)
			_, _ = io.WriteString(w, noRoles)
		})
		c := stub.client(t, func(o *client.Options) {
			o.ProofKey = key
			o.Now = func() time.Time {
				if at := refused.Load(); at != nil && time.Since(*at) >= time.Second { // the pause of the client
					return second.Add(tc.later)
				}
				return second.Add(tc.here)
			}
		})
		_, err := c.ListRoles(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := issued.Sub(second); got != tc.want {
			t.Errorf("our clock is at %s, then at %s: the next proof is of %s, want %s", tc.here, tc.later, got, tc.want)
		}
	}
}

// TestProofsAreMadeAnew checks that each attempt has a new proof, that no session id is sent without a proof, and that
// a permanent refusal is not retried forever.
func TestProofsAreMadeAnew(t *testing.T) {
	stub := newStub(t)
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	sent := map[string]bool{}
	stub.on("GET /api/roles", func(w http.ResponseWriter, r *http.Request, n int64) {
		if proof := r.Header.Get("DPoP"); proof == "" || sent[proof] || strings.Count(proof, ".") != 2 {
			t.Errorf("attempt %d came with the proof %q", n, proof)
		} else {
			sent[proof] = true
		}
		if n < 3 {
			fail(w, 401, `{"code":"PROOF_REPLAYED","detail":"d","reauth":false}`)
			return
		}
		_, _ = io.WriteString(w, noRoles)
	})
	c := stub.client(t, func(o *client.Options) { o.ProofKey = key })
	if _, err := c.ListRoles(t.Context()); !client.IsCode(err, "PROOF_REPLAYED") || stub.calls.Load() != 2 {
		t.Errorf("%d calls, %v", stub.calls.Load(), err)
	}
	if _, err := c.ListRoles(t.Context()); err != nil {
		t.Error(err)
	}
	if stub.logins.Load() != 1 {
		t.Errorf("%d logins", stub.logins.Load())
	}
}
