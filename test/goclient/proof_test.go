package goclient

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
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

// TestBoundSessions checks proof keys of any type: the client binds its sessions to the key, and each attempt of each
// call has a separate proof.
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

// TestBoundSessionsOnAWrongClock checks that the client learns the key server's time from the key server's error, and
// retries once.
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
