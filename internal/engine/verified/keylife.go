package verified

import (
	"context"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver/lifecycle"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// KeyStateResult is the result of changing the state of a key.
type KeyStateResult struct {
	Saved  bool
	Key    keyserver.KeyMetadata // as read back
	Detail string
}

// ChangeKeyState changes the state of a key. If the key already has that state, it sends no request.
func (s *Service) ChangeKeyState(ctx context.Context, by keyserver.Caller, change keyserver.KeyStateChange) (KeyStateResult, error) {
	if err := requireLink("ttag", change.Link); err != nil {
		return KeyStateResult{}, err
	}
	if change.Action == keyserver.DestroyKey && (change.Days < 1 || change.Days > lifecycle.MaxDestroyDays) {
		return KeyStateResult{}, fault.New(fault.BadRequest, "afterDays: must be from 1 to %d; the default is %d", lifecycle.MaxDestroyDays, keyserver.DefaultDestroyDays)
	}
	var target keyserver.KeyState
	return verifiedWrite[keyserver.KeyMetadata, KeyStateResult]{
		read: func(ctx context.Context) (keyserver.KeyMetadata, error) { return s.ks.KeyState(ctx, by, change.Link) },
		refuse: func(before keyserver.KeyMetadata) (err error) {
			target, err = lifecycle.Target(change, before.Life)
			return err
		},
		write: func(ctx context.Context, before keyserver.KeyMetadata) error {
			if before.Life.State == target {
				return nil
			}
			return s.ks.ChangeKeyState(ctx, by, change)
		},
		unread: fault.ReadbackFailed,
		verdict: func(before, after keyserver.KeyMetadata) (KeyStateResult, error) {
			r := KeyStateResult{Key: after, Saved: after.Life.State == target && (target == keyserver.KeyDestroying) != after.Life.DestroyAt.IsZero()}
			switch {
			case !r.Saved:
				r.Detail = fmt.Sprintf("the key server accepted the change, but a fresh read shows the key as %s", after.Life.State)
				return r, fault.New(fault.NotSaved, "%s", r.Detail)
			case before.Life.State == target:
				r.Detail = fmt.Sprintf("the key was already %s; nothing was sent", target)
			default:
				r.Detail = fmt.Sprintf("the key was %s and is now %s", before.Life.State, target)
			}
			return r, nil
		},
	}.do(ctx)
}

// KeyRotated is the result of rotating a key lineage, or of setting its rotation.
type KeyRotated struct {
	Saved  bool
	Key    keyserver.KeyMetadata // the newest key of the lineage as read back
	Detail string
}

// RotateKey mints the successor of the newest key of a lineage.
func (s *Service) RotateKey(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink) (KeyRotated, error) {
	if err := requireLink("ttag", link); err != nil {
		return KeyRotated{}, err
	}
	var successor keyserver.HiddenLink
	return verifiedWrite[keyserver.KeyLineage, KeyRotated]{
		read: func(ctx context.Context) (keyserver.KeyLineage, error) { return s.ks.KeyLineage(ctx, by, link) },
		refuse: func(before keyserver.KeyLineage) error {
			_, _, err := lifecycle.Rotate(before.Newest.Life, before.Rotation, before.Newest.Life.StateAt)
			return err
		},
		write: func(ctx context.Context, _ keyserver.KeyLineage) (err error) {
			successor, err = s.ks.RotateKey(ctx, by, link)
			return err
		},
		unread: fault.ReadbackFailed,
		verdict: func(before, after keyserver.KeyLineage) (KeyRotated, error) {
			newest, was := after.Newest, before.Newest
			r := KeyRotated{Key: newest}
			if newest.Link != successor || newest.Life.Lineage != was.Life.Lineage || newest.Life.Generation <= was.Life.Generation ||
				newest.Life.State != keyserver.KeyEnabled || newest.Algorithm != was.Algorithm || newest.Life.Exportable != was.Life.Exportable {
				r.Detail = "the key server accepted the rotation, but a fresh read does not show the expected successor as the newest key of the lineage"
				return r, fault.New(fault.NotSaved, "%s", r.Detail)
			}
			r.Saved, r.Detail = true, fmt.Sprintf("generation %d is the successor of generation %d", newest.Life.Generation, was.Life.Generation)
			return r, nil
		},
	}.do(ctx)
}

// SetKeyRotation sets when the keys of a lineage are rotated and destroyed.
func (s *Service) SetKeyRotation(ctx context.Context, by keyserver.Caller, change keyserver.KeyRotationChange) (KeyRotated, error) {
	if err := requireLink("ttag", change.Link); err != nil {
		return KeyRotated{}, err
	}
	if err := refuseRotation(change.Rotation); err != nil {
		return KeyRotated{}, err
	}
	return verifiedWrite[keyserver.KeyLineage, KeyRotated]{
		read:   func(ctx context.Context) (keyserver.KeyLineage, error) { return s.ks.KeyLineage(ctx, by, change.Link) },
		write:  func(ctx context.Context, _ keyserver.KeyLineage) error { return s.ks.SetKeyRotation(ctx, by, change) },
		unread: fault.ReadbackFailed,
		verdict: func(_, after keyserver.KeyLineage) (KeyRotated, error) {
			r := KeyRotated{Key: after.Newest, Saved: after.Rotation == change.Rotation, Detail: "a fresh read shows the rotation as sent"}
			switch {
			case !r.Saved:
				r.Detail = "the key server accepted the rotation, but a fresh read shows another one"
				return r, fault.New(fault.NotSaved, "%s", r.Detail)
			case change.Rotation.IsZero():
				r.Detail = "this lineage has no rotation schedule"
			}
			return r, nil
		},
	}.do(ctx)
}

func refuseRotation(r keyserver.KeyRotation) error {
	const most = lifecycle.MaxRotationDays
	switch {
	case r.Every < 0 || r.Every > most:
		return fault.New(fault.BadRequest, "everyDays: must be from 1 to %d, or 0 for never", most)
	case r.VerifyOnly < 0 || r.VerifyOnly > most:
		return fault.New(fault.BadRequest, "verifyOnlyDays: must be from 1 to %d, or 0 for ever", most)
	case r.DestroyAfter < 0 || r.DestroyAfter > lifecycle.MaxDestroyDays:
		return fault.New(fault.BadRequest, "destroyAfterDays: must be from 1 to %d, or 0 for never", lifecycle.MaxDestroyDays)
	case r.DestroyAfter > 0 && r.VerifyOnly == 0:
		return fault.New(fault.BadRequest, "destroyAfterDays: requires verifyOnlyDays, because a former key that verifies for ever is never destroyed; send both")
	}
	return nil
}

// ListKeys reads a page of the keys that the caller may read.
func (s *Service) ListKeys(ctx context.Context, by keyserver.Caller, f keyserver.KeyFilter) (keyserver.KeyPage, error) {
	if f.Limit < 1 || f.Limit > maxPage {
		return keyserver.KeyPage{}, fault.New(fault.BadRequest, "limit: must be from 1 to %d", maxPage)
	}
	return s.ks.ListKeys(ctx, by, f)
}
