package peer

import (
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Connections are looked at again whenever a CA or a peer may be gone.
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
		"PeerAdded":   {"more are let in, not fewer", []keyserver.Change{change(keyserver.ChangeTrustedServer, keyserver.Created)}, false},
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
