package strangers

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// falseTokens opens connections from these addresses. On each connection, it keeps this number of requests with random
// tokens in progress, until the returned function is called.
func falseTokens(t testing.TB, s *site, streams int, addresses ...net.IP) (stop func()) {
	t.Helper()
	const connections = 8
	ctx, cancel := context.WithCancel(t.Context())
	var going sync.WaitGroup
	for i := range connections {
		a := connectFrom(t, s, addresses[i%len(addresses)], 1<<16)
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
				if _, err := a.ask("POST", "/api/crypto/hmac", []byte("{}"), true, "authorization", falseToken()); err != nil {
					t.Errorf("request %d: %v", n, err)
					return
				}
			}
		})
	}
	return func() { cancel(); going.Wait() }
}

func falseToken() string {
	token := make([]byte, 32)
	_, _ = rand.Read(token)
	return "Bearer " + base64.RawURLEncoding.EncodeToString(token)
}

// TestFalseTokens checks that a session keeps most of its rate during requests with false tokens from several
// addresses.
func TestFalseTokens(t *testing.T) {
	const aim, least = 0.6, 0.3
	var addresses []net.IP
	for i := range 4 {
		addresses = append(addresses, net.IPv4(127, 2, 0, byte(i+1)))
	}
	each(t, func(t *testing.T, s *site) {
		if kept := s.keeps(t, aim, func() (stop func()) { return falseTokens(t, s, 15, addresses...) }); kept < least {
			t.Errorf("a session keeps %.2f of its rate next to false tokens", kept)
		}
	})
}

// falseTokensHTTP1 opens many connections from the honest client's address. On each, it keeps one request with a random
// token in progress, until the returned function is called. If the server closes a connection, it opens another one.
func falseTokensHTTP1(t testing.TB, s *site, connections int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: s.roots, ServerName: "localhost", MinVersion: tls.VersionTLS13}}
	var asked atomic.Int64
	var going sync.WaitGroup
	for range connections {
		going.Go(func() {
			for ctx.Err() == nil {
				conn, err := dialer.DialContext(ctx, "tcp", s.address)
				if err != nil {
					continue
				}
				end := context.AfterFunc(ctx, func() { _ = conn.Close() })
				answers := bufio.NewReader(conn)
				for {
					if _, err = io.WriteString(conn, "POST /api/crypto/hmac HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nAuthorization: "+falseToken()+"\r\n\r\n{}"); err != nil {
						break
					}
					asked.Add(1)
					a, err := http.ReadResponse(answers, nil)
					if err != nil {
						break
					}
					_, _ = io.Copy(io.Discard, a.Body)
				}
				end()
				_ = conn.Close()
			}
		})
	}
	rig.Soon(t, "as many requests are sent", func() bool { return asked.Load() >= int64(connections) })
	return func() { cancel(); going.Wait() }
}

// TestFalseTokensBeyondThePlaces checks a session while an address has more requests in progress than the server has
// places for this address. The session keeps much of its rate, even from the same address. With HTTP/1.1, attacker and
// server spend most of the time on handshakes, because each dropped request ends a connection.
func TestFalseTokensBeyondThePlaces(t *testing.T) {
	const aim = 0.6
	for name, c := range map[string]struct {
		begin func(s *site) (stop func())
		least float64
	}{
		"HTTP/1.1": {func(s *site) func() { return falseTokensHTTP1(t, s, 480) }, 0.2},
		"HTTP/2":   {func(s *site) func() { return falseTokens(t, s, 64, net.IPv4(127, 0, 0, 1)) }, 0.4},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *site) {
				if kept := s.keeps(t, aim, func() (stop func()) { return c.begin(s) }); kept < c.least {
					t.Errorf("a session keeps %.2f of its rate next to false tokens", kept)
				}
			})
		})
	}
}
