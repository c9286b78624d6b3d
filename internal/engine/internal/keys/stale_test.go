package keys

import (
	"reflect"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/cache/cachetest"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// TestWhatAChangeMakesStale checks which cache entries of keys each kind of change makes stale.
func TestWhatAChangeMakesStale(t *testing.T) {
	ks := New(gate.New(gate.Config{Base: gate.Base{Store: &sqlstore.Store{}}}), nil)
	cachetest.Check(t, reflect.TypeFor[Keys](), ks.Changed, map[string]cachetest.Case{
		"keys":     {Probe: cachetest.Of(&ks.keys.Cache, cachetest.ID, cachetest.Other), Stale: map[keyserver.ChangeKind]int{keyserver.ChangeKey: cachetest.One}},
		"lineages": {Probe: cachetest.Of(&ks.lineages.Cache, cachetest.ID, cachetest.Other), Stale: map[keyserver.ChangeKind]int{keyserver.ChangeKey: cachetest.One}},
	})
}
