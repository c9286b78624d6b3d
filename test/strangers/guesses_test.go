package strangers

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// guessing sends perSecond failing logins per second until the returned function is called. Each login has another
// name, and the source addresses alternate.
func guessing(t testing.TB, s *site, perSecond, addresses int) (stop func()) {
	t.Helper()
	var attackers []*attacker
	for i := range addresses {
		attackers = append(attackers, connectFrom(t, s, net.IPv4(127, 1, 0, byte(i+1)), 1<<16))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var going sync.WaitGroup
	going.Go(func() {
		ticks := time.NewTicker(time.Second / time.Duration(perSecond))
		defer ticks.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
			guess := fmt.Appendf(nil, `{"method":"password","name":"somebody%d","password":"a wrong one"}`, n)
			if _, err := attackers[n%addresses].ask("POST", "/api/sessions", guess, true, "content-type", "application/json"); err != nil {
				t.Errorf("guess %d: %v", n, err)
				return
			}
		}
	})
	return func() { cancel(); going.Wait() }
}

func TestGuessesFromManyAddresses(t *testing.T) {
	const aim, least = 0.7, 0.5
	metrics := rig.FreeAddress(t, "127.0.0.1")
	s := start(t, "--metrics-listen", metrics)
	if kept := s.keeps(t, aim, func() (stop func()) {
		stop = guessing(t, s, 20, 50)
		rig.Soon(t, "guesses are hashed", func() bool { return rig.Metric(t, metrics, "keyserver_logins_hashed") > 0 })
		return stop
	}); kept < least {
		t.Errorf("a session keeps %.2f of its rate next to guesses", kept)
	}
}

// TestNewcomersBesideGuesses checks that a principal can log in from a new address while password guesses arrive from
// many addresses, more than the server can hash.
func TestNewcomersBesideGuesses(t *testing.T) {
	metrics := rig.FreeAddress(t, "127.0.0.1")
	s := start(t, "--metrics-listen", metrics)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 2, 0, 1)}}
	elsewhere := program.Transport(s.roots, nil)
	elsewhere.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, s.address)
	}
	defer elsewhere.CloseIdleConnections()
	newcomer := &rig.Site{System: 1, Base: s.Base, HTTP: &http.Client{Transport: elsewhere}}
	defer guessing(t, s, 300, 60)()
	rig.Soon(t, "more guesses wait than addresses guess", func() bool { return rig.Metric(t, metrics, "keyserver_logins_waiting") > 60 })
	const tries = 5
	for try := 1; ; try++ {
		a := newcomer.Send(t, "", "POST", "/api/sessions", rig.Object{"method": "password", "name": "honest", "password": rig.Password})
		if a.Status == http.StatusOK {
			return
		}
		if try == tries {
			t.Fatalf("after %d tries: %s", tries, a.Brief())
		}
		time.Sleep(time.Second) // the value of Retry-After
	}
}
