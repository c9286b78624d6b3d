package peer

import (
	"context"
	"crypto/tls"
	"net"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// TestMayShutOut checks which changes require a check of the open connections.
func TestMayShutOut(t *testing.T) {
	change := func(kind keyserver.ChangeKind, action keyserver.ChangeAction) keyserver.Change {
		return keyserver.Change{Kind: kind, Action: action}
	}
	cases := map[string]struct {
		reason  string
		changes []keyserver.Change
		want    bool
	}{
		"Missed":      {"what is not known may be a removal", nil, true},
		"Removed":     {"a CA left", []keyserver.Change{change(keyserver.ChangeRole, keyserver.Updated), change(keyserver.ChangeTrustedCA, keyserver.Deleted)}, true},
		"Added":       {"more are let in, not fewer", []keyserver.Change{change(keyserver.ChangeTrustedCA, keyserver.Created)}, false},
		"PeerGone":    {"a peer left", []keyserver.Change{change(keyserver.ChangeTrustedServer, keyserver.Deleted)}, true},
		"PeerChanged": {"a peer's record may say another key", []keyserver.Change{change(keyserver.ChangeTrustedServer, keyserver.Updated)}, true},
		"PeerAdded":   {"it may have the key of another one", []keyserver.Change{change(keyserver.ChangeTrustedServer, keyserver.Created)}, true},
		"Revoked":     {"a CRL may name a peer", []keyserver.Change{change(keyserver.ChangeRevocation, keyserver.Updated)}, true},
		"OtherThing":  {"other nouns do not matter", []keyserver.Change{change(keyserver.ChangeRole, keyserver.Deleted)}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := mayShutOut(tc.changes); got != tc.want {
				t.Errorf("%s: got %v", tc.reason, got)
			}
		})
	}
}

// TestRegisteredAnewDuringAHandshake checks that a connection is refused if its peer is removed and registered again
// during the handshake.
func TestRegisteredAnewDuringAHandshake(t *testing.T) {
	for name, change := range map[string]func(*keyserver.TrustedServer){
		"Unchanged":      func(*keyserver.TrustedServer) {},
		"OtherTransport": func(s *keyserver.TrustedServer) { s.Transport = values.IDFromUint64(4711) },
		"OtherSystem":    func(s *keyserver.TrustedServer) { s.System = 9 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, patience)
			here, there := net.Pipe()
			go func() {
				k := key{w.client.endpoint, 2}
				if conn, _, err := k.ClientHandshake(t.Context(), "", there); err == nil {
					_, _ = conn.Read(make([]byte, 1))
				}
			}()
			endpoint := w.gate.endpoint
			conn, _, err := endpoint.handshake(t.Context(), here, tls.Server, func(keyserver.TrustedServer) error {
				w.knows.forget(func(r *registry) { change(&r.servers[0]) })
				endpoint.changed(nil)
				return endpoint.settle(context.Background()) // before the connection is registered
			})
			if (err == nil) != (name == "Unchanged") {
				t.Errorf("got %v", err)
			}
			if err == nil {
				_ = conn.Close()
			}
		})
	}
}
