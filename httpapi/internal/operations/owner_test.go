package operations

import (
	"reflect"
	"slices"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/wire"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// The OpenAPI document and the key server agree on the kinds of objects that can have an owner mark, and on the page
// length.
func TestOwnedKinds(t *testing.T) {
	var want []string
	for _, kind := range keyserver.OwnedKinds {
		want = append(want, string(kind))
	}
	mark, query, path := wire.Of(reflect.TypeFor[schema.OwnerMark]()), wire.Of(reflect.TypeFor[schema.OwnerQuery]()), wire.Of(reflect.TypeFor[schema.OwnedObject]())
	for name, f := range map[string]wire.Field{"answer": mark.Body[0], "query": query.Query[0], "path": path.Path[0]} {
		if f.Name != "kind" || !slices.Equal(f.Value.Enum, want) {
			t.Errorf("the kinds of the %s are %v, want %v", name, f.Value.Enum, want)
		}
	}
	if limit := query.Query[1]; limit.Name != "limit" || *limit.Value.Max != verified.MaxOwnerPage {
		t.Errorf("limit is up to %d, want %d", *limit.Value.Max, verified.MaxOwnerPage)
	}
	owner := wire.Of(reflect.TypeFor[schema.SetOwnerRequest]()).Body[0]
	if owner.Name != "owner" || *owner.Value.Max != keyserver.MaxOwner {
		t.Errorf("owner has up to %d characters, want %d", *owner.Value.Max, keyserver.MaxOwner)
	}
}
