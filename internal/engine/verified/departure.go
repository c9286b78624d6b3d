package verified

import (
	"context"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// PrincipalGone is the result of deleting a principal.
type PrincipalGone struct {
	Gone      bool
	Principal keyserver.Principal // before the deletion
	Done      keyserver.PrincipalDeletionResult
	Detail    string
}

// DeletePrincipal permanently deletes a principal and verifies that it is gone.
func (s *Service) DeletePrincipal(ctx context.Context, by keyserver.Caller, d keyserver.PrincipalDeletion) (PrincipalGone, error) {
	if err := requireID("id", d.ID); err != nil {
		return PrincipalGone{}, err
	}
	if d.NewOwner == d.ID {
		return PrincipalGone{}, fault.New(fault.BadRequest, "heir: is the principal to delete; name another")
	}
	var done keyserver.PrincipalDeletionResult
	return verifiedWrite[*keyserver.Principal, PrincipalGone]{
		read: func(ctx context.Context) (*keyserver.Principal, error) { return s.principalIfAny(ctx, by, d.ID) },
		refuse: func(before *keyserver.Principal) error {
			if before == nil {
				return fault.New(fault.NotFound, "no principal has the id %s", d.ID)
			}
			return refuseUpdate(by, *before)
		},
		write: func(ctx context.Context, _ *keyserver.Principal) (err error) {
			done, err = s.ks.DeletePrincipal(ctx, by, d)
			return err
		},
		verdict: func(before, after *keyserver.Principal) (PrincipalGone, error) {
			r := PrincipalGone{Principal: *before, Done: done}
			if after != nil {
				r.Detail = "the key server accepted the deletion, but a fresh read still shows the principal"
				return r, fault.New(fault.NotRemoved, "%s", r.Detail)
			}
			r.Gone = true
			r.Detail = fmt.Sprintf("principal %q is deleted; its id is never used again, and its audit rows stay", before.Name)
			return r, nil
		},
		unread: fault.ReadbackFailed,
	}.do(ctx)
}
