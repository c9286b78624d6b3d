package access

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func trust(who uint64, peer keyserver.SystemID, flag keyserver.TrustFlag) keyserver.PrincipalTrust {
	return keyserver.PrincipalTrust{Principal: values.IDFromUint64(who), Server: peer, Flag: flag}
}

func TestExposed(t *testing.T) {
	const me, team, crew, peer, other = 10, 20, 21, 2, 3
	ref := func(n uint64) keyserver.PrincipalRef {
		return keyserver.PrincipalRef{System: 1, ID: values.IDFromUint64(n)}
	}
	cases := map[string]struct {
		reason string
		rows   []keyserver.PrincipalTrust
		want   bool
	}{
		"NoRow":              {"silence is no exposure", nil, false},
		"Restricted":         {"a restriction is none either", []keyserver.PrincipalTrust{trust(me, peer, keyserver.Restrict)}, false},
		"OtherPeer":          {"a row is for one peer", []keyserver.PrincipalTrust{trust(me, other, keyserver.Expose)}, false},
		"OtherPrincipal":     {"a row is for one principal", []keyserver.PrincipalTrust{trust(11, peer, keyserver.Expose)}, false},
		"OtherGroup":         {"a group counts for its members", []keyserver.PrincipalTrust{trust(22, peer, keyserver.Expose)}, false},
		"GroupRestricted":    {"a group's restriction exposes nobody", []keyserver.PrincipalTrust{trust(team, peer, keyserver.Restrict)}, false},
		"OwnBeforeGroup":     {"one member is held back", []keyserver.PrincipalTrust{trust(team, peer, keyserver.Expose), trust(me, peer, keyserver.Restrict)}, false},
		"UnknownFlag":        {"what is not known exposes nobody", []keyserver.PrincipalTrust{trust(me, peer, 0), trust(team, peer, 9)}, false},
		"UnknownBeforeGroup": {"nor lets a group", []keyserver.PrincipalTrust{trust(me, peer, 9), trust(team, peer, keyserver.Expose)}, false},

		"Own":             {"exposed itself", []keyserver.PrincipalTrust{trust(me, peer, keyserver.Expose)}, true},
		"Group":           {"exposed by a group", []keyserver.PrincipalTrust{trust(team, peer, keyserver.Expose)}, true},
		"SecondGroup":     {"any group will do", []keyserver.PrincipalTrust{trust(team, peer, keyserver.Restrict), trust(crew, peer, keyserver.Expose)}, true},
		"OwnOverGroup":    {"its own row comes first", []keyserver.PrincipalTrust{trust(team, peer, keyserver.Restrict), trust(me, peer, keyserver.Expose)}, true},
		"OtherPeerNoMind": {"a restriction for another peer", []keyserver.PrincipalTrust{trust(me, other, keyserver.Restrict), trust(team, peer, keyserver.Expose)}, true},
	}
	who := Subject{Principal: ref(me), Groups: []keyserver.PrincipalRef{ref(team), ref(crew)}}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Exposed(tc.rows, who, peer)
			if got.Allowed != tc.want || (got.Why == "") != tc.want {
				t.Errorf("%s: got %+v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

func TestAdmitted(t *testing.T) {
	foreign := keyserver.PrincipalRef{System: 2, ID: values.IDFromUint64(50)}
	cases := map[string]struct {
		reason string
		rows   []keyserver.PrincipalTrust
		want   bool
	}{
		"Restricted":     {"named with its peer", []keyserver.PrincipalTrust{trust(50, 2, keyserver.Restrict)}, false},
		"NoRow":          {"the key's list decides", nil, true},
		"Exposed":        {"exposing is about sending", []keyserver.PrincipalTrust{trust(50, 2, keyserver.Expose)}, true},
		"OtherPeer":      {"another peer's principal", []keyserver.PrincipalTrust{trust(50, 3, keyserver.Restrict)}, true},
		"OtherPrincipal": {"another principal of the peer", []keyserver.PrincipalTrust{trust(51, 2, keyserver.Restrict)}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Admitted(tc.rows, foreign)
			if got.Allowed != tc.want || (got.Why == "") != tc.want {
				t.Errorf("%s: got %+v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

// TestExposedNeedsARow checks with random rows that a principal is exposed to a peer only by a row for that peer, and
// not if its own row restricts it.
func TestExposedNeedsARow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(1, 5)
		who := Subject{Principal: keyserver.PrincipalRef{ID: values.IDFromUint64(n.Draw(t, "principal"))}}
		for _, g := range rapid.SliceOfN(n, 0, 3).Draw(t, "groups") {
			who.Groups = append(who.Groups, keyserver.PrincipalRef{ID: values.IDFromUint64(g)})
		}
		seen := map[keyserver.ID]bool{}
		var rows []keyserver.PrincipalTrust
		for _, p := range rapid.SliceOfN(n, 0, 5).Draw(t, "rows") {
			row := trust(p, keyserver.SystemID(rapid.Uint32Range(2, 3).Draw(t, "peer")), keyserver.TrustFlag(rapid.IntRange(1, 2).Draw(t, "flag")))
			if row.Server != 2 || !seen[row.Principal] { // one row per principal and peer at most
				rows = append(rows, row)
				seen[row.Principal] = seen[row.Principal] || row.Server == 2
			}
		}
		own, byAny := keyserver.TrustFlag(0), false
		for _, row := range rows {
			if row.Server == 2 && row.Principal == who.Principal.ID {
				own = row.Flag
			}
			byAny = byAny || (row.Server == 2 && row.Flag == keyserver.Expose && who.Is(keyserver.PrincipalRef{ID: row.Principal}))
		}
		got := Exposed(rows, who, 2).Allowed
		if got && (!byAny || own == keyserver.Restrict) || !got && own == keyserver.Expose {
			t.Fatalf("got %v with %+v for %+v", got, rows, who)
		}
	})
}
