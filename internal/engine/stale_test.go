package engine

import (
	"reflect"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/cache/cachetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// What each kind of change makes stale in the caches of keys.
func TestWhatAChangeMakesStale(t *testing.T) {
	e := New(Config{Store: new(sqlstore.Store)})
	cachetest.Check(t, reflect.TypeFor[Engine](), e.changed, map[string]cachetest.Case{
		"keys":  {Probe: cachetest.Of(&e.keys.Cache, cachetest.ID, cachetest.Other), Stale: map[keyserver.ChangeKind]int{keyserver.ChangeKey: cachetest.One}},
		"lines": {Probe: cachetest.Of(&e.lines.Cache, cachetest.ID, cachetest.Other), Stale: map[keyserver.ChangeKind]int{keyserver.ChangeKey: cachetest.One}},
	})
}
