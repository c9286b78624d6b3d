package verified

import (
	"context"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// MaxOwnerPage is the maximum number of owner marks in a page.
const MaxOwnerPage = 1000

// OwnerSaved is the result of setting an owner mark.
type OwnerSaved struct {
	Saved bool
	// Mark is the mark as read back. If the key server refused the write, Mark is the existing mark. An empty owner
	// means that there is no mark.
	Mark   keyserver.OwnerMark
	Detail string
}

// OwnerReleased is the result of removing an owner mark.
type OwnerReleased struct {
	Gone   bool
	Mark   keyserver.OwnerMark // before the removal, or the existing mark if the key server refused
	Detail string
}

// OwnerPage is a page of owner marks.
type OwnerPage struct {
	Marks []keyserver.OwnerMark
	Next  keyserver.ID // zero on the last page
}

// Owners reads a page of owner marks of one kind of object, ordered by object id.
func (s *Service) Owners(ctx context.Context, by keyserver.Caller, f keyserver.OwnerFilter) (OwnerPage, error) {
	if f.Limit < 1 || f.Limit > MaxOwnerPage {
		return OwnerPage{}, fault.New(fault.BadRequest, "limit: must be from 1 to %d", MaxOwnerPage)
	}
	limit := f.Limit
	f.Limit++ // one more, to see whether there is another page
	marks, err := s.ks.OwnerMarks(ctx, by, f)
	if err != nil {
		return OwnerPage{}, err
	}
	page := OwnerPage{Marks: marks}
	if len(marks) > limit {
		page.Marks, page.Next = marks[:limit], marks[limit-1].Object.ID
	}
	return page, nil
}

// Owner reads the owner mark of an object.
func (s *Service) Owner(ctx context.Context, by keyserver.Caller, o keyserver.Object) (keyserver.OwnerMark, error) {
	mark, err := s.owner(ctx, by, o)
	if err == nil && mark.Owner == "" {
		err = fault.New(fault.NotFound, "%s has no owner mark", o)
	}
	return mark, err
}

// owner returns the owner mark of an object. If there is none, its Owner is empty.
func (s *Service) owner(ctx context.Context, by keyserver.Caller, o keyserver.Object) (keyserver.OwnerMark, error) {
	marks, err := s.ks.OwnerMarks(ctx, by, keyserver.OwnerFilter{Kind: o.Kind, ID: &o.ID})
	if err != nil || len(marks) == 0 {
		return keyserver.OwnerMark{Object: o}, err
	}
	return marks[0], nil
}

// SetOwner sets the owner mark of an object and verifies it. The key server decides by the existing mark whether the
// owner may change. If it refuses, the result has the existing mark.
func (s *Service) SetOwner(ctx context.Context, by keyserver.Caller, change keyserver.OwnerChange) (OwnerSaved, error) {
	if err := requireOwner("owner", change.Owner); err != nil {
		return OwnerSaved{}, err
	}
	if change.Expect != "" {
		if err := requireOwner("expect", change.Expect); err != nil {
			return OwnerSaved{}, err
		}
	}
	held := keyserver.OwnerMark{Object: change.Object}
	saved, err := verifiedWrite[keyserver.OwnerMark, OwnerSaved]{
		read: func(ctx context.Context) (keyserver.OwnerMark, error) { return s.owner(ctx, by, change.Object) },
		write: func(ctx context.Context, _ keyserver.OwnerMark) (err error) {
			held, err = s.ks.SetOwner(ctx, by, change)
			return err
		},
		verdict: func(before, after keyserver.OwnerMark) (OwnerSaved, error) {
			r := OwnerSaved{Mark: after, Saved: after.Owner == change.Owner}
			switch {
			case !r.Saved:
				r.Detail = fmt.Sprintf("the key server accepted the owner mark, but a fresh read shows the owner %q", after.Owner)
				return r, fault.New(fault.NotSaved, "%s", r.Detail)
			case before.Owner == change.Owner:
				r.Detail = "the object already had this owner mark"
			default:
				r.Detail = "a fresh read shows the owner mark"
			}
			return r, nil
		},
		unread: fault.ReadbackFailed,
	}.do(ctx)
	if fault.CodeOf(err) == fault.Owned {
		saved.Mark = held
	}
	return saved, err
}

// ReleaseOwner removes an owner mark and verifies that it is gone.
func (s *Service) ReleaseOwner(ctx context.Context, by keyserver.Caller, release keyserver.OwnerRelease) (OwnerReleased, error) {
	if err := requireOwner("expect", release.Expect); err != nil {
		return OwnerReleased{}, err
	}
	held := keyserver.OwnerMark{Object: release.Object}
	released, err := verifiedWrite[keyserver.OwnerMark, OwnerReleased]{
		read: func(ctx context.Context) (keyserver.OwnerMark, error) { return s.owner(ctx, by, release.Object) },
		write: func(ctx context.Context, _ keyserver.OwnerMark) (err error) {
			held, err = s.ks.ReleaseOwner(ctx, by, release)
			return err
		},
		verdict: func(_, after keyserver.OwnerMark) (OwnerReleased, error) {
			r := OwnerReleased{Mark: held, Gone: after.Owner != release.Expect, Detail: "a fresh read no longer shows the mark"}
			switch {
			case !r.Gone:
				r.Detail = "the key server accepted the release, but a fresh read still shows the mark"
				return r, fault.New(fault.NotRemoved, "%s", r.Detail)
			case after.Owner != "":
				r.Detail = fmt.Sprintf("the mark was released; %q has set its own mark since then", after.Owner)
			}
			return r, nil
		},
		unread: fault.ReadbackFailed,
	}.do(ctx)
	if fault.CodeOf(err) == fault.Owned {
		released.Mark = held
	}
	return released, err
}

// requireOwner returns an error unless the name has 1 to MaxOwner printable characters. It does not trim the name,
// because owners are compared byte by byte.
func requireOwner(field, name string) error {
	if !keyserver.ValidOwner(name) {
		return fault.New(fault.BadRequest, "%s: must have from 1 to %d printable characters", field, keyserver.MaxOwner)
	}
	return nil
}
