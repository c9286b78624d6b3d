//go:build !windows

// A key server is started here.

package client_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

func bound(t *testing.T, s *testserver.Server, key crypto.Signer, change func(*client.Options)) *client.Client {
	t.Helper()
	o := client.Options{
		BaseURL: s.URL(), RootCAs: s.Pool(t), ProofKey: key,
		Credentials: client.PasswordCredentials(testserver.AdminName, func(context.Context) (string, error) { return testserver.AdminPassword, nil }),
	}
	if change != nil {
		change(&o)
	}
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// TestBoundSessions checks that a client with a key of any type binds its sessions to it,
// and that each attempt of each call has its own proof.
func TestBoundSessions(t *testing.T) {
	p224, _ := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if _, err := client.New(client.Options{BaseURL: "https://keys.example", ProofKey: p224}); err == nil {
		t.Error("a key that no proof can be made with is taken")
	}
	s := testserver.Start(t)
	p256, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p384, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	_, ed, _ := ed25519.GenerateKey(rand.Reader)
	large, _ := rsa.GenerateKey(rand.Reader, 2048)
	for name, key := range map[string]crypto.Signer{"P-256": p256, "P-384": p384, "Ed25519": ed, "RSA": large} {
		t.Run(name, func(t *testing.T) {
			c := bound(t, s, key, nil)
			session, err := c.GetCurrentSession(t.Context())
			if err != nil || session.BoundKey == nil || len(*session.BoundKey) != 43 {
				t.Fatalf("got %+v, %v", session, err)
			}
			if page, err := c.ListChanges(t.Context(), schema.ChangesQuery{}); err != nil || page.Cursor == 0 {
				t.Errorf("a call with a query: %v", err)
			}
			minted, err := c.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.HMAC(t.Context(), minted.TTag, bytes.NewReader([]byte("hello"))); err != nil {
				t.Error(err)
			}
			if err := c.Logout(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestBoundSessionsOnAWrongClock checks that the client learns the service's clock from its
// refusal, and retries once.
func TestBoundSessionsOnAWrongClock(t *testing.T) {
	s := testserver.Start(t)
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		c := bound(t, s, key, func(o *client.Options) { o.Now = func() time.Time { return time.Now().Add(off) } })
		if _, err := c.GetCurrentSession(t.Context()); err != nil {
			t.Errorf("%s off: %v", off, err)
		}
	}
}

// A service that restarted after a crash accepts no proof of the second before. Its
// Date has no fraction, so a response at the end of a second must not set later
// proofs back by one.
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
		rig.Must(t, err)
		if got := issued.Sub(second); got != tc.want {
			t.Errorf("our clock is at %s, then at %s: the next proof is of %s, want %s", tc.here, tc.later, got, tc.want)
		}
	}
}

// TestProofsAreMadeAnew checks that each attempt has a new proof, that no session id is
// sent without one, and that retries of a permanent refusal end.
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
