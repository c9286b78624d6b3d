package export

import (
	"context"
	"fmt"
	"strings"

	apiclient "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// Bounds on the marks that are read: a million objects of a kind.
const (
	markPage  = 1000
	markPages = 1000
)

// owners returns a text about the owner of each object of a kind. It returns nil if the key server does not support
// owner marks.
func (e *exporter) owners(ctx context.Context, feed string, objects int) (map[schema.HexID]string, error) {
	if objects == 0 {
		return nil, nil
	}
	limit := markPage
	in := schema.OwnerQuery{Kind: feed, Limit: &limit}
	found := map[schema.HexID]string{}
	for range markPages {
		page, err := e.Admin.ListOwners(ctx, in)
		if apiclient.IsUnsupported(err) || apiclient.CodeOf(err) == "ACCESS_DENIED" {
			return nil, nil // the manifests then have no comment about owners
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

// sentence formats a mark as a comment of one line.
func sentence(m schema.OwnerMark) string {
	owner, adopted := strings.CutSuffix(m.Owner, "/Adopted")
	how := "which created it"
	if adopted {
		how = "which took it over"
	}
	if strings.Count(owner, "/") != 3 { // another client than this operator has set the mark
		return fmt.Sprintf("owned by %q", owner)
	}
	return fmt.Sprintf("owned by %q, %s", owner, how)
}
