package routes

import (
	"reflect"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/wire"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Approvable reports whether an approval can be requested for the route. A request that is streamed or that waits
// cannot be stored, and no approval rule applies to a route without operations.
func (r Route) Approvable() bool {
	return r.Session && len(r.Operations) > 0 && !r.Streams && !r.Waits && !r.Uncounted
}

// Unnamed marks an id that can never name another object later, because such ids are not reused: the ids of sessions
// and approvals.
const Unnamed = wire.Unnamed

// naming contains the types of values that name objects.
var naming = []reflect.Type{
	reflect.TypeFor[schema.HexID](), reflect.TypeFor[schema.DecimalID](), reflect.TypeFor[schema.Base64ID](), reflect.TypeFor[schema.HiddenLink](), reflect.TypeFor[schema.SystemID](),
	reflect.TypeFor[schema.IssuerDigest](), reflect.TypeFor[schema.TrustBlob](), reflect.TypeFor[schema.DER](),
}

// fieldsWithoutKind returns the fields that name objects without a kind of object. It returns none if no approval can
// be requested for the route.
func (r Route) fieldsWithoutKind() []string {
	if !r.Approvable() {
		return nil
	}
	kinds := []string{Unnamed, wire.Home, wire.ByRoute}
	for _, k := range keyserver.SubjectKinds {
		kinds = append(kinds, string(k))
	}
	unsaid := wire.Of(r.Request).FieldsWithoutKind(naming, kinds)
	if r.Request == reflect.TypeFor[schema.ByID]() && (r.Names == wire.ByRoute || !slices.Contains(kinds, string(r.Names))) {
		unsaid = append(unsaid, "the id of the path (Route.Names)")
	}
	return unsaid
}
