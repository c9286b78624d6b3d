package httpapi

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/clients/go/wire"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
)

// Approvals store the objects that a request names.
func TestSubjectsOfRequests(t *testing.T) {
	id := schema.HexID(values.IDFromUint64(5))
	heir := schema.HexID(values.IDFromUint64(6))
	named := map[string]routes.Route{}
	for _, r := range routes.All() {
		named[r.Name] = r
	}
	for name, x := range map[string]struct {
		in   any
		want string
	}{
		"deletePrincipal":      {&schema.DeletePrincipalRequest{ID: id, Heir: &heir}, "principal 0000000000000005, principal 0000000000000006"},
		"setOwner":             {&schema.SetOwnerRequest{OwnedObject: schema.OwnedObject{Kind: "trustedCA", ID: id}}, "owner trustedCA 0000000000000005"},
		"releaseOwner":         {&schema.ReleaseOwnerRequest{OwnedObject: schema.OwnedObject{Kind: "key", ID: id}}, "owner key 0000000000000005"},
		"deleteRole":           {&schema.ByID{ID: id}, "role 0000000000000005"},
		"updateRole":           {&schema.UpdateRoleRequest{ID: id, Operations: []schema.HexID{heir}}, "holders 0000000000000005"},
		"updatePrincipalRoles": {&schema.UpdatePrincipalRolesRequest{ID: id, RoleIDs: []schema.HexID{heir, id}}, "principal 0000000000000005, role 0000000000000006, role 0000000000000005"},
		"addGroupMember":       {&schema.GroupMemberRequest{Group: id, Member: heir}, "group 0000000000000005, principal 0000000000000006"},
		"exportKey":            {&schema.ExportKeyRequest{TTag: "k", SystemID: 7, PrincipalID: schema.DecimalID(id)}, "key aw==, principal 7/0000000000000005"},
		"lookUpPrincipals":     {&schema.LookupPrincipalsRequest{Principals: []schema.PrincipalPair{{SystemID: 7, PrincipalID: schema.DecimalID(id)}, {SystemID: 8, PrincipalID: schema.DecimalID(id)}}}, "principal 7/0000000000000005, principal 8/0000000000000005"},
		"removeTrustedServer":  {&schema.BySystemID{SystemID: 7}, "peer 7"},
		"addTrustedServer":     {&schema.AddTrustedServerRequest{TrustBlob: schema.TrustBlob{System: 9}}, "peer 9"},
		"removeTrustedCa":      {&schema.RemoveTrustedCARequest{CertificateID: schema.Base64ID(id)}, "trustedCa 0000000000000005"},
		"enrollCertificates":   {&schema.EnrollCertificatesRequest{Certificates: []schema.DER{bytes.Repeat([]byte{1}, 3)}}, "certificate 75c8fd04ad916aec3e3d5cb76a452b116b3d4d0912a0a485e9fb8e3d240e210c"},
		"endSession":           {&schema.ByID{ID: id}, ""},
	} {
		r := named[name]
		if reflect.TypeOf(x.in).Elem() != r.Request {
			t.Fatalf("%s takes a %s", name, r.Request)
		}
		var got []string
		for _, s := range subjects(r, wire.Of(r.Request).Names(x.in)) {
			got = append(got, fmt.Sprint(s.Kind, " ", s.Key))
		}
		if text := strings.Join(got, ", "); text != x.want {
			t.Errorf("%s names %s, want %s", name, text, x.want)
		}
	}
}
