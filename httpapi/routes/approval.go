package routes

import (
	"reflect"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/wire"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Askable reports whether an approval can ask for the route. What streams or waits cannot be
// kept, and what needs no operation is guarded by no rule.
func (r Route) Askable() bool {
	return r.Session && len(r.Operations) > 0 && !r.Streams && !r.Waits && !r.Uncounted
}

// Unnamed is of an id that cannot become something else: sessions and approvals
// are made under one that was never used before.
const Unnamed = wire.Unnamed

// naming are the types by which requests name objects.
var naming = []reflect.Type{
	reflect.TypeFor[schema.HexID](), reflect.TypeFor[schema.DecimalID](), reflect.TypeFor[schema.Base64ID](), reflect.TypeFor[schema.HiddenLink](), reflect.TypeFor[schema.SystemID](),
	reflect.TypeFor[schema.IssuerDigest](), reflect.TypeFor[schema.TrustBlob](), reflect.TypeFor[schema.DER](),
}

// unsaid lists the names in requests of a route that an approval can be asked for,
// of which nobody said what they name.
func (r Route) unsaid() []string {
	if !r.Askable() {
		return nil
	}
	kinds := []string{Unnamed, wire.Home, wire.ByRoute}
	for _, k := range keyserver.SubjectKinds {
		kinds = append(kinds, string(k))
	}
	unsaid := wire.Of(r.Request).Unmarked(naming, kinds)
	if r.Request == reflect.TypeFor[schema.ByID]() && (r.Names == wire.ByRoute || !slices.Contains(kinds, string(r.Names))) {
		unsaid = append(unsaid, "the id of the path (Route.Names)")
	}
	return unsaid
}
