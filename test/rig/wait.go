package rig

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
	"time"
)

// Patience is a timeout that is far longer than any step of a test. It only distinguishes a slow machine from a hanging
// process.
const Patience = 2 * time.Minute

// The pauses between two checks. They are short at first, because most conditions are true soon.
const (
	oftenest = 5 * time.Millisecond
	rarest   = 100 * time.Millisecond
)

// Soon waits until holds returns true. It fails the test after Patience.
func Soon(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Within(t, Patience, what, holds)
}

// Within is like Soon with another timeout.
func Within(t testing.TB, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	if !poll(patience, holds) {
		t.Fatalf("not in %s: %s", patience, what)
	}
}

// Succeeds repeats a check until it returns no error. It fails the test after Patience.
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

// FreeAddress returns an address of the host on which no process listens. The port is below the range that Linux and
// macOS use for outgoing connections. An outgoing connection on the port could prevent a restarted server from
// listening there.
func FreeAddress(t testing.TB, host string) string {
	t.Helper()
	address, err := FindAddress(host)
	Must(t, err)
	return address
}

// The ports that FreeAddress returns.
const (
	firstPort = 12000
	lastPort  = 29999
)

// FindAddress is like FreeAddress, but returns the error.
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

// Must fails the test if err is not nil. Use it for errors of the setup, not of the tested code.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
