package engine

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/cache"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// probe looks into one cache.
type probe struct {
	put   func() // two entries, the first by the id of the changes below
	count func() int
}

func probeOf[K comparable, V any](t *testing.T, c *cache.Cache[K, V], first, second K) probe {
	t.Helper()
	return probe{
		put: func() {
			for _, k := range []K{first, second} {
				if _, err := c.Get(t.Context(), k, func() (v V, err error) { return v, nil }); err != nil {
					t.Fatal(err)
				}
			}
		},
		count: c.Len,
	}
}

// What each kind of change makes stale: a cache that misses one would be a
// decision on old rights.
func TestWhatAChangeMakesStale(t *testing.T) {
	kinds := []keyserver.ChangeKind{
		keyserver.ChangeTrustedCA, keyserver.ChangeRole, keyserver.ChangePrincipal, keyserver.ChangeKey, keyserver.ChangeSession,
		keyserver.ChangeTrustedServer, keyserver.ChangePrincipalTrust, keyserver.ChangeCertificate, keyserver.ChangeRevocation,
		keyserver.ChangeACLTemplate, keyserver.ChangeTemplatedDirectory, keyserver.ChangeApprovalPolicy, keyserver.ChangeAuthority,
	}
	e := New(Config{Store: new(sqlstore.Store)})
	id, other := keyserver.IDFromUint64(1), keyserver.IDFromUint64(2)
	const one, all = 1, 2 // entries that a change of the kind drops
	cases := map[string]struct {
		probe
		stale map[keyserver.ChangeKind]int
	}{
		"principals": {probeOf(t, &e.principals.Cache, id, other), map[keyserver.ChangeKind]int{keyserver.ChangePrincipal: one}},
		"roles":      {probeOf(t, &e.roles.Cache, id, other), map[keyserver.ChangeKind]int{keyserver.ChangeRole: one}},
		"lines":      {probeOf(t, &e.lines.Cache, id, other), map[keyserver.ChangeKind]int{keyserver.ChangeKey: one}},
		"keys":       {probeOf(t, &e.keys.Cache, id, other), map[keyserver.ChangeKind]int{keyserver.ChangeKey: one}},
		"standings":  {probeOf(t, &e.standings.Cache, id, other), map[keyserver.ChangeKind]int{keyserver.ChangeCertificate: one}},
		"issuers":    {probeOf(t, e.issuers, "a", "b"), map[keyserver.ChangeKind]int{keyserver.ChangeRevocation: all}},
		"anchors":    {probeOf(t, e.anchors, id, other), map[keyserver.ChangeKind]int{keyserver.ChangeTrustedCA: all, keyserver.ChangeAuthority: all}},
		"enrolled":   {probeOf(t, e.enrolled, id, other), map[keyserver.ChangeKind]int{keyserver.ChangeCertificate: all}},
		"peers":      {probeOf(t, &e.peers.Cache, id, other), map[keyserver.ChangeKind]int{keyserver.ChangeTrustedServer: one}},
		"policies": {
			probeOf(t, e.policies, keyserver.Unified, keyserver.Split), map[keyserver.ChangeKind]int{keyserver.ChangeApprovalPolicy: all},
		},
		"trusts": {
			probeOf(t, e.trusts, trustKey{principal: id}, trustKey{principal: other}),
			map[keyserver.ChangeKind]int{keyserver.ChangePrincipalTrust: all},
		},
	}
	for field := range reflect.TypeFor[Engine]().Fields() {
		if _, ok := cases[field.Name]; !ok && strings.HasPrefix(field.Type.String(), "*cache.") {
			t.Errorf("the cache %s is not looked at here", field.Name)
		}
	}
	for name, tc := range cases {
		left := func(changes ...keyserver.Change) int {
			tc.put()
			if tc.count() != 2 {
				t.Fatalf("%s: %d entries, want 2", name, tc.count())
			}
			e.changed(changes)
			return tc.count()
		}
		got := map[keyserver.ChangeKind]int{}
		for _, kind := range kinds {
			if n := left(keyserver.Change{Kind: kind, ID: id}); n < 2 {
				got[kind] = 2 - n
				if n := left(keyserver.Change{Kind: kind}); n != 0 {
					t.Errorf("%s: %d entries left after a %s that names none", name, n, kind)
				}
			}
		}
		if diff := cmp.Diff(tc.stale, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if n := left(); n != 0 {
			t.Errorf("%s: %d entries left after a reset", name, n)
		}
	}
}
