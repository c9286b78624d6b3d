package verified

import (
	"context"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// DelegateResult is the result of adding or removing a delegate.
type DelegateResult struct {
	Asked     keyserver.Delegate
	Done      bool                // the change is visible after the write
	Principal keyserver.Principal // as read back
	Detail    string
}

// AddDelegate permits a delegate to act with the rights of a principal. It verifies this. Adding an existing delegate
// succeeds and changes nothing.
func (s *Service) AddDelegate(ctx context.Context, by keyserver.Caller, d keyserver.Delegate) (DelegateResult, error) {
	return s.changeDelegate(ctx, by, d, s.ks.AddDelegate, func(_, after keyserver.Principal) (DelegateResult, error) {
		r := DelegateResult{Asked: d, Principal: after}
		if !slices.Contains(after.Delegates, d.Delegate) {
			r.Detail = "the key server accepted the delegate, but a fresh read does not show it"
			return r, fault.New(fault.NotSaved, "%s", r.Detail)
		}
		r.Done, r.Detail = true, "a fresh read shows the delegate; only listed delegates may act with the rights of the principal"
		if !after.Flags.Delegation() {
			r.Detail += ", and only after its delegation flag is set"
		}
		return r, nil
	})
}

// RemoveDelegate removes a delegate. It verifies that the delegate is gone, and that the delegation flag is not set
// without delegates, which would permit every principal.
func (s *Service) RemoveDelegate(ctx context.Context, by keyserver.Caller, d keyserver.Delegate) (DelegateResult, error) {
	return s.changeDelegate(ctx, by, d, s.ks.RemoveDelegate, func(before, after keyserver.Principal) (DelegateResult, error) {
		r := DelegateResult{Asked: d, Principal: after}
		switch {
		case slices.Contains(after.Delegates, d.Delegate):
			r.Detail = "the key server accepted the removal, but a fresh read still shows the delegate"
		case len(after.Delegates) == 0 && after.Flags.Delegation():
			r.Detail = "the delegate is removed, but the principal has the delegation flag and no delegates, so any principal that may act for others may act for it; clear the flag"
		default:
			r.Done, r.Detail = true, "a fresh read no longer shows the delegate"
			if len(after.Delegates) == 0 && before.Flags.Delegation() {
				r.Detail += "; it was the last, so the delegation flag was cleared (without delegates, it permits any principal to act for this one); to permit that, set it with PUT /api/principals/{id}/flags"
			}
			return r, nil
		}
		return r, fault.New(fault.NotRemoved, "%s", r.Detail)
	})
}

func (s *Service) changeDelegate(ctx context.Context, by keyserver.Caller, d keyserver.Delegate,
	write func(context.Context, keyserver.Caller, keyserver.Delegate) error,
	verdict func(before, after keyserver.Principal) (DelegateResult, error),
) (DelegateResult, error) {
	if err := requireID("id", d.Principal); err != nil {
		return DelegateResult{}, err
	}
	if err := requireID("pid", d.Delegate); err != nil {
		return DelegateResult{}, err
	}
	return verifiedWrite[keyserver.Principal, DelegateResult]{
		read: func(ctx context.Context) (keyserver.Principal, error) { return s.ks.Principal(ctx, by, d.Principal) },
		refuse: func(before keyserver.Principal) error {
			if err := refuseUpdate(by, before); err != nil {
				return err
			}
			if !before.Type.CarriesFlags() {
				return fault.New(fault.NoFlagWord, "a %s principal has no flag word, so it cannot have delegates; name a principal of another type", before.Type)
			}
			return nil
		},
		write:   func(ctx context.Context, _ keyserver.Principal) error { return write(ctx, by, d) },
		verdict: verdict,
		unread:  fault.ReadbackFailed,
	}.do(ctx)
}
