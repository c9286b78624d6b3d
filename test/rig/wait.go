package rig

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
	"time"
)

// Patience is far longer than anything here takes: it must only tell a slow
// machine from what hangs.
const Patience = 2 * time.Minute

// How often is looked: often at first, because most things are done at once.
const (
	oftenest = 5 * time.Millisecond
	rarest   = 100 * time.Millisecond
)

// Soon waits until something holds.
func Soon(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Within(t, Patience, what, holds)
}

// Within is Soon with a patience of its own.
func Within(t testing.TB, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	if !poll(patience, holds) {
		t.Fatalf("not in %s: %s", patience, what)
	}
}

// Succeeds repeats a check until it has no error.
func Succeeds(t testing.TB, check func() error) {
	t.Helper()
	var err error
	if !poll(Patience, func() bool {
		err = check()
		return err == nil
	}) {
		t.Fatalf("not in %s: %v", Patience, err)
	}
}

func poll(patience time.Duration, holds func() bool) bool {
	pause := oftenest
	for end := time.Now().Add(patience); !holds(); {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(pause)
		pause = min(pause*3/2, rarest)
	}
	return true
}

// FreeAddress returns an address of the host on which no process listens. Its port is below those that
// Linux and macOS give to outgoing connections. One of these would keep a server that was killed from
// listening again.
func FreeAddress(t testing.TB, host string) string {
	t.Helper()
	address, err := FindAddress(host)
	Must(t, err)
	return address
}

// The ports of FreeAddress.
const (
	firstPort = 12000
	lastPort  = 29999
)

// FindAddress is FreeAddress without a test.
func FindAddress(host string) (address string, err error) {
	for range 100 {
		address = net.JoinHostPort(host, strconv.Itoa(firstPort+rand.IntN(lastPort-firstPort+1)))
		var l net.Listener
		if l, err = net.Listen("tcp", address); err == nil {
			return address, l.Close()
		}
	}
	return "", err
}

// Must fails the test for an error that is no subject of it.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
