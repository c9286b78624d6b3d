package routes

import (
	"reflect"
	"slices"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/wire"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// TestAnswersAreOfTheCatalogue checks that each code with a status is in the catalogue. httpapi checks the reverse.
func TestAnswersAreOfTheCatalogue(t *testing.T) {
	for code := range faultResponses {
		if !slices.ContainsFunc(fault.Catalogue, func(e fault.Entry) bool { return e.Code == code }) {
			t.Errorf("%s has a status and is not in the catalogue", code)
		}
	}
}

// If an approval can be requested for a route, each id in a request of the route has a kind.
func TestEveryIDHasAKind(t *testing.T) {
	type silent struct {
		ID   schema.HexID `path:"id" json:"-"`
		Else struct {
			Links []schema.HiddenLink `json:"links" names:"kye"`
		} `json:"else"`
	}
	unsaid := Route{Session: true, Operations: grants(keyserver.OpListRoles), Request: reflect.TypeFor[silent]()}.fieldsWithoutKind()
	if !slices.Equal(unsaid, []string{"silent.id", ".links"}) {
		t.Errorf("of a silent route, %q", unsaid)
	}
	byID := Route{Session: true, Operations: grants(keyserver.OpListRoles), Request: reflect.TypeFor[schema.ByID]()}
	if len(byID.fieldsWithoutKind()) != 1 {
		t.Error("an id of the path need not be said")
	}
	enums := wire.Of(reflect.TypeFor[schema.ApprovalSubject]()).Body[0].Value.Enum
	for _, kind := range keyserver.SubjectKinds {
		if !slices.Contains(enums, string(kind)) {
			t.Errorf("the document does not know %s", kind)
		}
	}
}
