package session

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// fullGate is a gate with one place, which is taken until release is called.
type fullGate struct {
	*loginGate
	release func()
}

func newFullGate(t *testing.T) fullGate {
	t.Helper()
	g := newLoginGate(password.NewGate(1), 1)
	release, err := g.enter(t.Context(), stranger(0))
	rig.Must(t, err)
	return fullGate{g, release}
}

func stranger(n int) Login {
	return Login{From: From{Address: fmt.Sprintf("198.51.100.%d", n)}, attempt: &attempt{}}
}

func knownAs(name string, n int) Login {
	l := stranger(n)
	l.Name, l.attempt.known = name, true
	return l
}

// waits starts a login and returns when it waits in the queue. The login gives its place back immediately.
func (g fullGate) waits(t *testing.T, queue *quota.Crowd[string], l Login) (left <-chan error) {
	t.Helper()
	before, result := queue.Held(), make(chan error, 1)
	go func() {
		leave, err := g.enter(t.Context(), l)
		if err == nil {
			leave()
		}
		result <- err
	}()
	rig.Soon(t, "the login waits", func() bool { return queue.Held() > before })
	return result
}

// TestStrangersFillTheirOwnQueue: a login from a known address enters before all waiting logins from unknown addresses.
func TestStrangersFillTheirOwnQueue(t *testing.T) {
	g := newFullGate(t)
	for n := range strangersPerPlace {
		g.waits(t, g.strangers, stranger(n))
	}
	entered := make(chan error, 1)
	go func() { // this login keeps its place
		_, err := g.enter(t.Context(), knownAs("known", 1))
		entered <- err
	}()
	rig.Soon(t, "a known login waits", func() bool { return g.known.Held() == 1 })
	g.release()
	rig.Must(t, <-entered)
	if waiting := g.strangers.Held(); waiting != strangersPerPlace {
		t.Errorf("%d strangers wait, want %d: one of them went first", waiting, strangersPerPlace)
	}
}

// TestStrangersGiveWay: networks that fill the queue cannot exclude another network.
func TestStrangersGiveWay(t *testing.T) {
	g := newFullGate(t)
	first := g.waits(t, g.strangers, stranger(1))
	for n := range strangersPerPlace - 1 {
		g.waits(t, g.strangers, stranger(n/2+1)) // two logins of each network
	}
	newcomer := make(chan error, 1)
	go func() {
		_, err := g.enter(t.Context(), stranger(200)) // this login keeps its place
		newcomer <- err
	}()
	if err := <-first; fault.CodeOf(err) != fault.Overloaded {
		t.Errorf("the oldest of the largest network: %v", err)
	}
	g.release()
	rig.Must(t, <-newcomer)
}

// TestANameFillsItsShareOnly: an attacker with a known password and many addresses cannot prevent logins of other
// names.
func TestANameFillsItsShareOnly(t *testing.T) {
	g := newFullGate(t)
	defer g.release()
	share := quota.Share(knownPerPlace)
	for n := range share {
		g.waits(t, g.known, knownAs("greedy", n))
	}
	if _, err := g.enter(t.Context(), knownAs("greedy", share)); fault.CodeOf(err) != fault.Overloaded {
		t.Errorf("beyond its share: %v", err)
	}
	g.waits(t, g.known, knownAs("other", share))
}

// TestASiteFillsItsShareOnly checks that the networks of one IPv6 site (48 bits) count as one network.
func TestASiteFillsItsShareOnly(t *testing.T) {
	g := newFullGate(t)
	defer g.release()
	at := func(n int) Login {
		return Login{From: From{Address: fmt.Sprintf("2001:db8:1:%x::1", n)}, attempt: &attempt{}}
	}
	share := quota.Share(strangersPerPlace)
	for n := range share {
		g.waits(t, g.strangers, at(n))
	}
	if _, err := g.enter(t.Context(), at(share)); fault.CodeOf(err) != fault.Overloaded {
		t.Errorf("beyond its share: %v", err)
	}
}

// TestEnterEndsWithItsCaller: a login whose context ends leaves the queue.
func TestEnterEndsWithItsCaller(t *testing.T) {
	g := newFullGate(t)
	defer g.release()
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := g.enter(ctx, stranger(1))
		left <- err
	}()
	rig.Soon(t, "the login waits", func() bool { return g.strangers.Held() == 1 })
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the login ends with %v", err)
	}
	if g.strangers.Held() != 0 {
		t.Error("it still waits")
	}
}
