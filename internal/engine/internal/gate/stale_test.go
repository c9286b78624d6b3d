package gate

import (
	"reflect"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/cache/cachetest"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// TestWhatAChangeMakesStale checks which cache entries of the gate each kind of change makes stale.
func TestWhatAChangeMakesStale(t *testing.T) {
	g := New(Config{Base: Base{Store: &sqlstore.Store{}}})
	id, other := cachetest.ID, cachetest.Other
	const one, all = cachetest.One, cachetest.All
	cachetest.Check(t, reflect.TypeFor[Gate](), g.Changed, map[string]cachetest.Case{
		"principals":   {Probe: cachetest.Of(&g.principals.Cache, id, other), Stale: map[keyserver.ChangeKind]int{keyserver.ChangePrincipal: one}},
		"roles":        {Probe: cachetest.Of(&g.roles.Cache, id, other), Stale: map[keyserver.ChangeKind]int{keyserver.ChangeRole: one}},
		"certificates": {Probe: cachetest.Of(&g.certificates.Cache, id, other), Stale: map[keyserver.ChangeKind]int{keyserver.ChangeCertificate: one}},
		"issuers":      {Probe: cachetest.Of(g.issuers, "a", "b"), Stale: map[keyserver.ChangeKind]int{keyserver.ChangeRevocation: all}},
		"anchors":      {Probe: cachetest.Of(g.anchors, id, other), Stale: map[keyserver.ChangeKind]int{keyserver.ChangeTrustedCA: all, keyserver.ChangeAuthority: all}},
		"enrolled":     {Probe: cachetest.Of(g.enrolled, id, other), Stale: map[keyserver.ChangeKind]int{keyserver.ChangeCertificate: all}},
		"peers":        {Probe: cachetest.Of(&g.peers.Cache, id, other), Stale: map[keyserver.ChangeKind]int{keyserver.ChangeTrustedServer: one}},
		"policies":     {Probe: cachetest.Of(g.policies, keyserver.Unified, keyserver.Split), Stale: map[keyserver.ChangeKind]int{keyserver.ChangeApprovalPolicy: all}},
		"trusts": {
			Probe: cachetest.Of(g.trusts, trustKey{principal: id}, trustKey{principal: other}),
			Stale: map[keyserver.ChangeKind]int{keyserver.ChangePrincipalTrust: all},
		},
	})
}
