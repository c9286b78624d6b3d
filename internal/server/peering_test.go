package server

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Connections are looked at again whenever a CA may have left the list.
func TestMayShutOut(t *testing.T) {
	change := func(kind keyserver.ChangeKind, action keyserver.ChangeAction) keyserver.Change {
		return keyserver.Change{Kind: kind, Action: action}
	}
	cases := map[string]struct {
		reason  string
		changes []keyserver.Change
		want    bool
	}{
		"Missed":     {"what is not known may be a removal", nil, true},
		"Removed":    {"a CA left", []keyserver.Change{change(keyserver.ChangeRole, keyserver.Updated), change(keyserver.ChangeTrustedCA, keyserver.Deleted)}, true},
		"Added":      {"more are let in, not fewer", []keyserver.Change{change(keyserver.ChangeTrustedCA, keyserver.Created)}, false},
		"PeerGone":   {"a peer that is removed may still connect; it is not served", []keyserver.Change{change(keyserver.ChangeTrustedServer, keyserver.Deleted)}, false},
		"OtherThing": {"other nouns do not matter", []keyserver.Change{change(keyserver.ChangeRole, keyserver.Deleted)}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := mayShutOut(tc.changes); got != tc.want {
				t.Errorf("%s: got %v", tc.reason, got)
			}
		})
	}
}

// The loopback address is this machine's own, its neighbours are not: two key
// servers on one machine can be peers.
func TestOwnAddresses(t *testing.T) {
	own, err := ownAddresses()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(own, netip.MustParseAddr("127.0.0.1")) {
		t.Errorf("127.0.0.1 is missing in %v", own)
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
		if got := listenerPort(l); got == 0 {
			t.Errorf("%s: no port", l.Addr())
		}
	}
}
