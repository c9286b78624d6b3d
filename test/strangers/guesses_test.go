package strangers

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// guessing sends 20 logins a second, each with another name and from another address than the
// 50 before it, until the returned function is called.
func guessing(t testing.TB, s *site) (stop func()) {
	t.Helper()
	const addresses = 50
	var attackers []*attacker
	for i := range addresses {
		attackers = append(attackers, connectFrom(t, s, net.IPv4(127, 1, 0, byte(i+1)), 1<<16))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var going sync.WaitGroup
	going.Go(func() {
		ticks := time.NewTicker(time.Second / 20)
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
		stop = guessing(t, s)
		rig.Soon(t, "guesses are hashed", func() bool { return gauge(t, metrics, "keyserver_logins_hashed") > 0 })
		return stop
	}); kept < least {
		t.Errorf("a session keeps %.2f of its rate next to guesses", kept)
	}
}
