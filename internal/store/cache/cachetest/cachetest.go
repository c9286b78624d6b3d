// Package cachetest tests, for all caches of a struct, which entries a change of each kind makes stale.
package cachetest

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/cache"
)

// Numbers of stale entries, for Case.Stale.
const (
	One = 1
	All = 2
)

// Case is the test of one cache. Stale has the number of entries that a change of each kind drops.
type Case struct {
	Probe
	Stale map[keyserver.ChangeKind]int
}

// Probe fills one cache and counts its entries.
type Probe struct {
	put   func(t *testing.T)
	count func() int
}

// Of returns a probe that puts two entries into a cache. The changes that Check announces are about the first entry.
func Of[K comparable, V any](c *cache.Cache[K, V], first, second K) Probe {
	return Probe{
		put: func(t *testing.T) {
			t.Helper()
			for _, k := range []K{first, second} {
				if _, err := c.Get(t.Context(), k, func() (v V, err error) { return v, nil }); err != nil {
					t.Fatal(err)
				}
			}
		},
		count: c.Len,
	}
}

// ID is the id in the changes that Check announces. Other is the id of another entry.
var (
	ID    = values.IDFromUint64(1)
	Other = values.IDFromUint64(2)
)

// Check announces a change of each kind and checks which entries it drops. Each field of holder with a cache needs a
// case with the name of the field. A cache that missed a change would cause decisions with old rights.
func Check(t *testing.T, holder reflect.Type, changed func([]keyserver.Change), cases map[string]Case) {
	t.Helper()
	for field := range holder.Fields() {
		if _, ok := cases[field.Name]; !ok && strings.HasPrefix(field.Type.String(), "*cache.") {
			t.Errorf("the test has no case for the cache %s", field.Name)
		}
	}
	for name, tc := range cases {
		tc.check(t, name, changed)
	}
}

func (c Case) check(t *testing.T, name string, changed func([]keyserver.Change)) {
	t.Helper()
	kinds := []keyserver.ChangeKind{
		keyserver.ChangeTrustedCA, keyserver.ChangeRole, keyserver.ChangePrincipal, keyserver.ChangeKey, keyserver.ChangeSession,
		keyserver.ChangeTrustedServer, keyserver.ChangePrincipalTrust, keyserver.ChangeCertificate, keyserver.ChangeRevocation,
		keyserver.ChangeACLTemplate, keyserver.ChangeTemplatedDirectory, keyserver.ChangeApprovalPolicy, keyserver.ChangeAuthority,
	}
	left := func(changes ...keyserver.Change) int {
		c.put(t)
		if c.count() != 2 {
			t.Fatalf("%s: %d entries, want 2", name, c.count())
		}
		changed(changes)
		return c.count()
	}
	got := map[keyserver.ChangeKind]int{}
	for _, kind := range kinds {
		if n := left(keyserver.Change{Kind: kind, ID: ID}); n < 2 {
			got[kind] = 2 - n
			if n := left(keyserver.Change{Kind: kind}); n != 0 {
				t.Errorf("%s: %d entries left after a %s without an object", name, n, kind)
			}
		}
	}
	if diff := cmp.Diff(c.Stale, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
	if n := left(); n != 0 {
		t.Errorf("%s: %d entries left after a reset", name, n)
	}
}
