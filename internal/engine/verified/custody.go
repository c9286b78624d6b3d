package verified

import (
	"context"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// DataKeyRotated is the result of creating a data key.
type DataKeyRotated struct {
	Saved   bool
	DataKey keyserver.ID
	Custody keyserver.Custody // as read back
	Detail  string
}

// Custody reads the state of the keyring and its data keys.
func (s *Service) Custody(ctx context.Context, by keyserver.Caller) (keyserver.Custody, error) {
	return s.ks.Custody(ctx, by)
}

// RotateDataKey creates a data key and verifies that it is the active one. The key server rewraps the keys in the
// background.
func (s *Service) RotateDataKey(ctx context.Context, by keyserver.Caller) (DataKeyRotated, error) {
	var made keyserver.ID
	return verifiedWrite[keyserver.Custody, DataKeyRotated]{
		read: func(ctx context.Context) (keyserver.Custody, error) { return s.ks.Custody(ctx, by) },
		write: func(ctx context.Context, _ keyserver.Custody) (err error) {
			made, err = s.ks.RotateDataKey(ctx, by)
			return err
		},
		unread: fault.ReadbackFailed,
		verdict: func(before, after keyserver.Custody) (DataKeyRotated, error) {
			is := func(k keyserver.DataKey) bool { return k.ID == made }
			r := DataKeyRotated{DataKey: made, Custody: after, Detail: "a fresh read shows the new data key as active; GET /api/custody shows the progress of rewrapping older keys"}
			at := slices.IndexFunc(after.DataKeys, is)
			r.Saved = at >= 0 && after.DataKeys[at].State == keyserver.DataKeyActive && !slices.ContainsFunc(before.DataKeys, is)
			if !r.Saved {
				r.Detail = "the key server accepted the rotation, but a fresh read does not show the new data key as active"
				return r, fault.New(fault.NotSaved, "%s", r.Detail)
			}
			return r, nil
		},
	}.do(ctx)
}
