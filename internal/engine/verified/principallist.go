package verified

import (
	"context"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// maxPage is the maximum number of entries that a caller may request from a list (contract 9.1).
const maxPage = 500

// ListPrincipals reads principals of one type, ordered by name. It rejects a limit that is too large. It does not
// reduce the limit, because the caller would take the short page for the last page.
func (s *Service) ListPrincipals(ctx context.Context, by keyserver.Caller, f keyserver.PrincipalFilter) (keyserver.PrincipalPage, error) {
	if !slices.Contains(keyserver.PrincipalTypes, f.Type) {
		return keyserver.PrincipalPage{}, fault.New(fault.BadRequest, "type: must be one of %v", keyserver.PrincipalTypes)
	}
	if err := requireWindow(f.Limit, f.Offset); err != nil {
		return keyserver.PrincipalPage{}, err
	}
	return s.ks.ListPrincipals(ctx, by, f)
}

// requireWindow returns an error for a limit or offset that contract 9.1 does not permit. A limit of 0 means the entire
// list.
func requireWindow(limit, offset int) error {
	switch {
	case limit < 0 || limit > maxPage:
		return fault.New(fault.BadRequest, "limit: must be from 1 to %d", maxPage)
	case offset < 0:
		return fault.New(fault.BadRequest, "offset: must not be negative")
	case offset > 0 && limit == 0:
		return fault.New(fault.BadRequest, "offset: requires limit; send both")
	default:
		return nil
	}
}

// LookupPrincipals reads the principals of the pairs. It omits pairs that cannot be resolved.
func (s *Service) LookupPrincipals(ctx context.Context, by keyserver.Caller, pairs []keyserver.PrincipalRef) ([]keyserver.Principal, error) {
	if len(pairs) == 0 || len(pairs) > keyserver.MaxLookup {
		return nil, fault.New(fault.BadRequest, "principals: must have 1 to %d elements", keyserver.MaxLookup)
	}
	for _, pair := range pairs {
		if err := requireID("principalId", pair.ID); err != nil {
			return nil, err
		}
	}
	return s.ks.LookupPrincipals(ctx, by, pairs)
}
