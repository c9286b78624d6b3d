package strangers

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"net"
	"sync"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// falseTokens keeps requests with random tokens under way on several connections of four addresses,
// until the returned function is called.
func falseTokens(t testing.TB, s *site) (stop func()) {
	t.Helper()
	const addresses, connections, streams = 4, 8, 15
	ctx, cancel := context.WithCancel(t.Context())
	var going sync.WaitGroup
	for i := range connections {
		a := connectFrom(t, s, net.IPv4(127, 2, 0, byte(i%addresses+1)), 1<<16)
		rig.Must(t, a.readEverything())
		going.Go(func() {
			for n := 0; ; n++ {
				if n >= streams {
					select {
					case <-a.ended:
					case <-ctx.Done():
						return
					}
				}
				token := make([]byte, 32)
				_, _ = rand.Read(token)
				bearer := "Bearer " + base64.RawURLEncoding.EncodeToString(token)
				if _, err := a.ask("POST", "/api/crypto/hmac", []byte("{}"), true, "authorization", bearer); err != nil {
					t.Errorf("request %d: %v", n, err)
					return
				}
			}
		})
	}
	return func() { cancel(); going.Wait() }
}

// TestFalseTokens: false tokens from several addresses leave a session most of its rate.
func TestFalseTokens(t *testing.T) {
	const aim, least = 0.6, 0.3
	each(t, func(t *testing.T, s *site) {
		if kept := s.keeps(t, aim, func() (stop func()) { return falseTokens(t, s) }); kept < least {
			t.Errorf("a session keeps %.2f of its rate next to false tokens", kept)
		}
	})
}
