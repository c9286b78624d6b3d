package verified

import (
	"context"
	"fmt"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// AuthorityChanged is the result of preparing or activating an authority.
type AuthorityChanged struct {
	Saved       bool
	ID          keyserver.ID // of the prepared or activated authority
	Authorities []keyserver.Authority
	Detail      string
}

// AuthorityGone is the result of retiring an authority.
type AuthorityGone struct {
	Gone        bool
	ID          keyserver.ID
	Authorities []keyserver.Authority
	Detail      string
}

// Authorities returns the key server's own CAs.
func (s *Service) Authorities(ctx context.Context, by keyserver.Caller) ([]keyserver.Authority, error) {
	return s.ks.Authorities(ctx, by)
}

// PrepareAuthority creates the next authority and verifies that it is trusted.
func (s *Service) PrepareAuthority(ctx context.Context, by keyserver.Caller) (AuthorityChanged, error) {
	var id keyserver.ID
	return s.authorityWrite(by, func(ctx context.Context) (err error) {
		id, err = s.ks.PrepareAuthority(ctx, by)
		return err
	}, func(before, after []keyserver.Authority) (AuthorityChanged, error) {
		r := AuthorityChanged{ID: id, Authorities: after}
		i, known := withID(after, id), withID(before, id) >= 0
		if i < 0 || known || after[i].State != keyserver.AuthorityPrepared {
			r.Detail = "the key server accepted the request, but a fresh list shows no new prepared authority"
			return r, fault.New(fault.NotSaved, "%s", r.Detail)
		}
		r.Saved = true
		r.Detail = "a fresh list shows the authority as prepared: it is trusted from now on, and issues certificates only after its activation"
		return r, nil
	}).do(ctx)
}

// ActivateAuthority makes the prepared authority the active one, and verifies that.
func (s *Service) ActivateAuthority(ctx context.Context, by keyserver.Caller, early bool) (AuthorityChanged, error) {
	var id keyserver.ID
	return s.authorityWrite(by, func(ctx context.Context) (err error) {
		id, err = s.ks.ActivateAuthority(ctx, by, early)
		return err
	}, func(_, after []keyserver.Authority) (AuthorityChanged, error) {
		r := AuthorityChanged{ID: id, Authorities: after}
		i := withID(after, id)
		if i < 0 || after[i].State != keyserver.AuthorityActive || i != inState(after, keyserver.AuthorityActive) {
			r.Detail = "the key server accepted the activation, but a fresh list does not show the authority as the only active one"
			return r, fault.New(fault.NotSaved, "%s", r.Detail)
		}
		r.Saved = true
		r.Detail = "a fresh list shows the authority as active: it issues certificates from now on; the previous one stays trusted until it is retired"
		return r, nil
	}).do(ctx)
}

// authorityWrite returns a verified write that refuses nothing before the write. The key server itself checks the
// authorities when it writes.
func (s *Service) authorityWrite(by keyserver.Caller, write func(context.Context) error,
	verdict func(before, after []keyserver.Authority) (AuthorityChanged, error),
) verifiedWrite[[]keyserver.Authority, AuthorityChanged] {
	return verifiedWrite[[]keyserver.Authority, AuthorityChanged]{
		read:    func(ctx context.Context) ([]keyserver.Authority, error) { return s.ks.Authorities(ctx, by) },
		write:   func(ctx context.Context, _ []keyserver.Authority) error { return write(ctx) },
		verdict: verdict,
		unread:  fault.ReadbackFailed,
	}
}

// RetireAuthority ends the trust in an authority and verifies that the authority is gone.
func (s *Service) RetireAuthority(ctx context.Context, by keyserver.Caller, id keyserver.ID) (AuthorityGone, error) {
	if err := requireID("certificateId", id); err != nil {
		return AuthorityGone{}, err
	}
	var told keyserver.AuthorityRetired
	return verifiedWrite[[]keyserver.Authority, AuthorityGone]{
		read: func(ctx context.Context) ([]keyserver.Authority, error) { return s.ks.Authorities(ctx, by) },
		refuse: func(before []keyserver.Authority) error {
			if withID(before, id) < 0 {
				return fault.New(fault.NotFound, "no authority has the certificateId %s; list them with GET /api/authority", id.Base64())
			}
			return nil
		},
		write: func(ctx context.Context, _ []keyserver.Authority) (err error) {
			told, err = s.ks.RetireAuthority(ctx, by, id)
			return err
		},
		verdict: func(_, after []keyserver.Authority) (AuthorityGone, error) {
			r := AuthorityGone{ID: id, Authorities: after}
			if withID(after, id) >= 0 {
				r.Detail = "the key server accepted the retirement, but a fresh list still has the authority"
				return r, fault.New(fault.NotRemoved, "%s", r.Detail)
			}
			r.Gone, r.Detail = true, "a fresh list no longer shows the authority, and its certificates are no longer trusted here"
			if told.InForce > 0 {
				r.Detail += fmt.Sprintf("; %s that it issued had not expired: logins with them are refused until they are renewed (POST /api/certificates/renew)",
					rows(told.InForce, "certificate"))
			}
			return r, nil
		},
		unread: fault.ReadbackFailed,
	}.do(ctx)
}

func inState(list []keyserver.Authority, state keyserver.AuthorityState) int {
	return slices.IndexFunc(list, func(a keyserver.Authority) bool { return a.State == state })
}

func withID(list []keyserver.Authority, id keyserver.ID) int {
	return slices.IndexFunc(list, func(a keyserver.Authority) bool { return a.ID == id })
}
