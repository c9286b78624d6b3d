package httpapi

import (
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/wire"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
)

// plain has the names of members whose meaning is evident.
var plain = strings.Fields(`acl aclId aclTemplateId action algorithm authorized certificateId certificates changes count
	description digest directories disabled entries entryCount friendlyName groupId groupIds id issuer issuers memberCount
	members name operations outcome page parts principal principalId principals publicKeyType ready recipient requestId
	roleIds roles serverName status subject systemId templates time trustedCAs trustedServers type`)

// The reference describes every member of a response that is not in plain.
func TestAnswersSayWhatTheirMembersMean(t *testing.T) {
	seen, used := map[*wire.Table]bool{}, map[string]bool{}
	var walk func(table *wire.Table)
	walk = func(table *wire.Table) {
		if table == nil || seen[table] {
			return
		}
		seen[table] = true
		for _, f := range table.Body {
			switch {
			case f.Doc != "":
			case slices.Contains(plain, f.Name):
				used[f.Name] = true
			default:
				t.Errorf("%s: %s has no doc tag", table.Type, f.Name)
			}
			v := &f.Value
			for v.Elem != nil {
				v = v.Elem
			}
			walk(v.Members)
		}
	}
	for _, r := range routes.All() {
		if r.Response != nil && r.MediaType() == routes.MediaJSON {
			walk(wire.Of(r.Response))
		}
	}
	for _, name := range plain {
		if !used[name] {
			t.Errorf("no member without a doc tag is called %s any more; take it off the list", name)
		}
	}
	if len(seen) < 50 {
		t.Errorf("only %d types were looked at", len(seen))
	}
}
