package verified

import (
	"context"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// maxPage is the largest window that a listing can be asked for (contract 9.1).
const maxPage = 500

// ListPrincipals reads principals of one type by name. A window that is too
// large is refused and never made smaller: its reader would take the short
// page for the last.
func (s *Service) ListPrincipals(ctx context.Context, by keyserver.Caller, f keyserver.PrincipalFilter) (keyserver.PrincipalPage, error) {
	if !slices.Contains(keyserver.PrincipalTypes, f.Type) {
		return keyserver.PrincipalPage{}, fault.New(fault.BadRequest, "type must be one of %v", keyserver.PrincipalTypes)
	}
	if err := requireWindow(f.Limit, f.Offset); err != nil {
		return keyserver.PrincipalPage{}, err
	}
	return s.ks.ListPrincipals(ctx, by, f)
}

// requireWindow refuses windows outside of contract 9.1. No limit is no window.
func requireWindow(limit, offset int) error {
	switch {
	case limit < 0 || limit > maxPage:
		return fault.New(fault.BadRequest, "limit must be from 1 to %d", maxPage)
	case offset < 0:
		return fault.New(fault.BadRequest, "offset must not be negative")
	case offset > 0 && limit == 0:
		return fault.New(fault.BadRequest, "offset needs limit")
	default:
		return nil
	}
}

// LookupPrincipals resolves pairs. What cannot be resolved is left out.
func (s *Service) LookupPrincipals(ctx context.Context, by keyserver.Caller, pairs []keyserver.PrincipalRef) ([]keyserver.Principal, error) {
	if len(pairs) == 0 || len(pairs) > keyserver.MaxLookup {
		return nil, fault.New(fault.BadRequest, "principals must have 1 to %d elements", keyserver.MaxLookup)
	}
	for _, pair := range pairs {
		if err := requireID("principalId", pair.ID); err != nil {
			return nil, err
		}
	}
	return s.ks.LookupPrincipals(ctx, by, pairs)
}
