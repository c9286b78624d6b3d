package export

import (
	"context"
	"fmt"
	"strings"

	apiclient "github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// markKinds are the kinds of the change feed, which marks go by.
var markKinds = map[string]string{
	"TrustedCA": "trustedCA", "TrustedServer": "trustedServer", "PrincipalTrust": "principalTrust", "Role": "role", "Principal": "principal", "ACLTemplate": "aclTemplate",
	"Key": "key",
}

// Bounds of what is read of marks: a million objects of a kind.
const (
	markPage  = 1000
	markPages = 1000
)

// owners reads who manages the objects of a kind, and is nil where the key server
// does not say.
func (e *exporter) owners(ctx context.Context, kind string, objects int) (map[schema.HexID]string, error) {
	feed, is := markKinds[kind]
	if !is {
		return nil, fmt.Errorf("nobody knows what owner marks call a %s", kind)
	}
	if objects == 0 {
		return nil, nil
	}
	limit := markPage
	in := schema.OwnerQuery{Kind: feed, Limit: &limit}
	found := map[schema.HexID]string{}
	for range markPages {
		page, err := e.Admin.ListOwners(ctx, in)
		if apiclient.IsUnsupported(err) || apiclient.CodeOf(err) == "ACCESS_DENIED" {
			return nil, nil // a comment less
		}
		if err != nil {
			return nil, err
		}
		for _, m := range page.Owners {
			found[m.ID] = sentence(m)
		}
		if page.Next == nil {
			return found, nil
		}
		in.After = page.Next
	}
	return nil, fmt.Errorf("the key server has more than %d owner marks of kind %s", markPage*markPages, feed)
}

// sentence says what a mark says. It stands in a comment, of one line.
func sentence(m schema.OwnerMark) string {
	owner, adopted := strings.CutSuffix(m.Owner, "/Adopted")
	how := "which made it"
	if adopted {
		how = "which took it over"
	}
	if strings.Count(owner, "/") != 3 { // not one of ours
		return fmt.Sprintf("owned by %q", owner)
	}
	return fmt.Sprintf("owned by %q, %s", owner, how)
}
