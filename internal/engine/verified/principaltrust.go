package verified

import (
	"context"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// MaxTrustPage is the maximum number of principal trusts in a page.
const MaxTrustPage = 500

// PrincipalTrustSaved is the result of creating or changing a principal trust.
type PrincipalTrustSaved struct {
	Trust  *keyserver.PrincipalTrust // as read back; nil if the principal trust does not exist
	Saved  bool
	Detail string
}

// PrincipalTrustGone is the result of deleting a principal trust.
type PrincipalTrustGone struct {
	ID     keyserver.ID
	Gone   bool
	Trust  keyserver.PrincipalTrust // before the deletion
	Detail string
}

// PrincipalTrusts reads the principal trusts that a filter selects.
func (s *Service) PrincipalTrusts(ctx context.Context, by keyserver.Caller, f keyserver.PrincipalTrustFilter) ([]keyserver.PrincipalTrust, error) {
	switch {
	case f.Limit < 0 || f.Limit > MaxTrustPage:
		return nil, fault.New(fault.BadRequest, "limit: must be from 1 to %d", MaxTrustPage)
	case f.Offset < 0:
		return nil, fault.New(fault.BadRequest, "offset: must not be negative")
	case f.Offset > 0 && f.Limit == 0:
		return nil, fault.New(fault.BadRequest, "offset: requires limit; send both")
	}
	return s.ks.PrincipalTrusts(ctx, by, f)
}

// CreatePrincipalTrust creates a principal trust and verifies it.
func (s *Service) CreatePrincipalTrust(ctx context.Context, by keyserver.Caller, t keyserver.PrincipalTrust) (PrincipalTrustSaved, error) {
	if err := requireID("principalId", t.Principal); err != nil {
		return PrincipalTrustSaved{}, err
	}
	if err := refuseFlag(t.Flag); err != nil {
		return PrincipalTrustSaved{}, err
	}
	pair := keyserver.PrincipalTrustFilter{Principal: &t.Principal, Server: &t.Server, Limit: 1}
	return verifiedWrite[[]keyserver.PrincipalTrust, PrincipalTrustSaved]{
		read: func(ctx context.Context) ([]keyserver.PrincipalTrust, error) {
			return s.ks.PrincipalTrusts(ctx, by, pair)
		},
		refuse: func(before []keyserver.PrincipalTrust) error {
			if len(before) > 0 {
				return fault.New(fault.AlreadyExists, "the principal already has a principal trust for this peer, %s; change its flag instead", before[0].ID)
			}
			return nil
		},
		write: func(ctx context.Context, _ []keyserver.PrincipalTrust) (err error) {
			t.ID, err = s.ks.CreatePrincipalTrust(ctx, by, t)
			return err
		},
		verdict: func(_, after []keyserver.PrincipalTrust) (PrincipalTrustSaved, error) { return judgeTrust(t, after) },
	}.do(ctx)
}

// UpdatePrincipalTrust changes the flag of a principal trust and verifies it.
func (s *Service) UpdatePrincipalTrust(ctx context.Context, by keyserver.Caller, change keyserver.PrincipalTrustChange) (PrincipalTrustSaved, error) {
	if err := refuseFlag(change.Flag); err != nil {
		return PrincipalTrustSaved{}, err
	}
	return verifiedWrite[[]keyserver.PrincipalTrust, PrincipalTrustSaved]{
		read:   s.trustByID(by, change.ID),
		refuse: func(before []keyserver.PrincipalTrust) error { return refuseNoTrust(before, change.ID) },
		write: func(ctx context.Context, _ []keyserver.PrincipalTrust) error {
			return s.ks.UpdatePrincipalTrust(ctx, by, change)
		},
		verdict: func(before, after []keyserver.PrincipalTrust) (PrincipalTrustSaved, error) {
			want, _ := findTrust(before, change.ID)
			want.Flag = change.Flag
			return judgeTrust(want, after)
		},
	}.do(ctx)
}

// DeletePrincipalTrust deletes a principal trust and verifies that it is gone.
func (s *Service) DeletePrincipalTrust(ctx context.Context, by keyserver.Caller, id keyserver.ID) (PrincipalTrustGone, error) {
	return verifiedWrite[[]keyserver.PrincipalTrust, PrincipalTrustGone]{
		read:   s.trustByID(by, id),
		refuse: func(before []keyserver.PrincipalTrust) error { return refuseNoTrust(before, id) },
		write: func(ctx context.Context, _ []keyserver.PrincipalTrust) error {
			return s.ks.DeletePrincipalTrust(ctx, by, id)
		},
		verdict: func(before, after []keyserver.PrincipalTrust) (PrincipalTrustGone, error) {
			trust, _ := findTrust(before, id)
			r := PrincipalTrustGone{ID: id, Trust: trust}
			if _, still := findTrust(after, id); still {
				r.Detail = "the key server accepted the removal, but a fresh read still shows the principal trust"
				return r, fault.New(fault.NotRemoved, "%s", r.Detail)
			}
			r.Gone, r.Detail = true, "a fresh read no longer shows the principal trust"
			return r, nil
		},
	}.do(ctx)
}

func (s *Service) trustByID(by keyserver.Caller, id keyserver.ID) func(context.Context) ([]keyserver.PrincipalTrust, error) {
	return func(ctx context.Context) ([]keyserver.PrincipalTrust, error) {
		return s.ks.PrincipalTrusts(ctx, by, keyserver.PrincipalTrustFilter{ID: &id, Limit: 1})
	}
}

// judgeTrust returns the verdict on a created or changed principal trust. All fields must be as requested.
func judgeTrust(want keyserver.PrincipalTrust, after []keyserver.PrincipalTrust) (PrincipalTrustSaved, error) {
	var r PrincipalTrustSaved
	got, ok := findTrust(after, want.ID)
	switch {
	case !ok:
		r.Detail = "the key server accepted the principal trust, but a fresh read does not show it"
	case got != want:
		r.Trust, r.Detail = &got, fmt.Sprintf("a fresh read shows the flag %q, or another principal or peer than sent", got.Flag.Label())
	default:
		r.Trust, r.Saved, r.Detail = &got, true, "a fresh read shows principal, peer and flag as sent"
		return r, nil
	}
	return r, fault.New(fault.NotPersisted, "%s", r.Detail)
}

// refuseFlag returns an error for a number that is not a flag. The key server would store the number with an unknown
// effect.
func refuseFlag(flag keyserver.TrustFlag) error {
	if flag.Label() == "" {
		return fault.New(fault.BadRequest, "flag: must be restrict or expose")
	}
	return nil
}

func refuseNoTrust(list []keyserver.PrincipalTrust, id keyserver.ID) error {
	if _, ok := findTrust(list, id); !ok {
		return fault.New(fault.NotFound, "no principal trust has the id %s; list them with GET /api/principal-trusts", id)
	}
	return nil
}

func findTrust(list []keyserver.PrincipalTrust, id keyserver.ID) (keyserver.PrincipalTrust, bool) {
	for _, t := range list {
		if t.ID == id {
			return t, true
		}
	}
	return keyserver.PrincipalTrust{}, false
}
