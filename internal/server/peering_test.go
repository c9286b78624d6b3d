package server

import (
	"net"
	"net/netip"
	"slices"
	"testing"
)

// TestOwnAddresses checks that the loopback address and the listening address belong to this machine, but no other
// loopback address. So two key servers on one machine can be peers.
func TestOwnAddresses(t *testing.T) {
	own, err := ownAddresses(netip.MustParseAddr("127.0.0.3"))
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"127.0.0.1", "127.0.0.3"} {
		if !slices.Contains(own, netip.MustParseAddr(address)) {
			t.Errorf("%s is missing in %v", address, own)
		}
	}
	if slices.Contains(own, netip.MustParseAddr("127.0.0.2")) {
		t.Errorf("127.0.0.2 is in %v", own)
	}
}

func TestListenerPort(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", ":0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if got := listensAt(l).Port(); got == 0 {
			t.Errorf("%s: no port", l.Addr())
		}
	}
}
