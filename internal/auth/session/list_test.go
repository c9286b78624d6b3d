package session_test

import (
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

func gated(t testing.TB, f *enginetest.Fixture) *session.Manager {
	t.Helper()
	return manager(t, f, func(c *session.Config) { c.Authorizer = f })
}

func caller(t testing.TB, m *session.Manager, o session.Opened) keyserver.Caller {
	t.Helper()
	by, release, err := m.Authenticate(ctx, o.Token, session.Proof{}, session.From{RequestID: "r"})
	if err != nil {
		t.Fatal(err)
	}
	release()
	return by
}

func scopedOf(t testing.TB, m *session.Manager, by keyserver.Caller) session.Opened {
	t.Helper()
	o, err := m.Login(ctx, session.Login{
		Method: keyserver.ScopedSession, Objects: []keyserver.HiddenLink{"a"}, By: &by, From: session.From{Address: "192.0.2.9", RequestID: "r"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestList checks that the list has owner, address, start and end of each live session, in pages, and no secret.
func TestList(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		m := gated(t, f)
		expired := open(t, m)
		f.Clock.Advance(idle + idle/5)
		first := open(t, m)
		by := caller(t, m, first)
		f.Clock.Advance(time.Minute)
		made := scopedOf(t, m, by)

		page, err := m.List(ctx, by, session.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[keyserver.ID]session.Summary{}
		for _, s := range page.Sessions {
			got[s.ID] = s
		}
		if len(got) != 2 || !page.Next.IsZero() {
			t.Fatalf("want the two that live and no further page, got %+v (%s has expired)", page, expired.Info.ID)
		}
		one, other := got[first.Info.ID], got[made.Info.ID]
		if one.Kind != keyserver.PasswordSession || one.Principal.Name != "admin" || one.Address != "192.0.2.1" || !one.MadeFrom.IsZero() ||
			one.CreatedAt.After(one.LastUsedAt) || one.IdleExpiresAt != one.LastUsedAt.Add(idle) || one.ExpiresAt != one.CreatedAt.Add(lifetime) {
			t.Errorf("a login: %+v", one)
		}
		if other.Kind != keyserver.ScopedSession || other.MadeFrom != first.Info.ID || other.Address != "192.0.2.9" || other.IdleExpiresAt != other.ExpiresAt {
			t.Errorf("made from it: %+v", other)
		}

		var seen []keyserver.ID
		for after := (keyserver.ID{}); ; {
			page, err := m.List(ctx, by, session.Filter{Limit: 1, After: after, Principal: by.Principal.ID})
			if err != nil || len(page.Sessions) != 1 {
				t.Fatalf("a page of one: %+v, %v", page, err)
			}
			seen = append(seen, page.Sessions[0].ID)
			if after = page.Next; after.IsZero() {
				break
			}
		}
		if len(seen) != 2 || seen[0] == seen[1] {
			t.Errorf("page by page: %v", seen)
		}
	})
}

// TestWhoListsAndEndsSessions checks that callers need no role for their own sessions, but a role for other sessions. A
// scoped credential has no own sessions.
func TestWhoListsAndEndsSessions(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		m := gated(t, f)
		admin := open(t, m)
		plain := f.Add(t, keyserver.PasswordPrincipal, "plain", nil, nil)

		_, err := m.List(ctx, plain, session.Filter{Principal: plain.Principal.ID})
		want(t, err, "")
		if row := f.LastRow(t); row.Operation != "listSessions" || row.Outcome != keyserver.Allowed || row.Object != plain.Principal.ID.Hex() {
			t.Errorf("the row is %+v", row)
		}
		narrowed, lent := plain, plain
		narrowed.Scope = []keyserver.HiddenLink{}
		lent.Actor = f.Admin.Principal
		for name, by := range map[string]keyserver.Caller{"plain": plain, "narrowed": narrowed, "lent": lent} {
			for what, err := range map[string]error{
				"everybody's": second(m.List(ctx, by, session.Filter{})),
				"another's":   second(m.List(ctx, by, session.Filter{Principal: f.Admin.Principal.ID})),
				"one":         second(m.EndOne(ctx, by, admin.Info.ID)),
				"none":        second(m.EndOne(ctx, by, values.IDFromUint64(99))),
				"all":         second(m.EndAll(ctx, by, f.Admin.Principal.ID)),
			} {
				refusals := map[string]fault.Code{"plain": fault.AccessDenied, "narrowed": fault.NotInScope, "lent": fault.DelegatorRefused}
				if fault.CodeOf(err) != refusals[name] {
					t.Errorf("%s, %s: got %v", name, what, err)
				}
			}
		}
		_, err = m.List(ctx, narrowed, session.Filter{Principal: plain.Principal.ID})
		want(t, err, fault.NotInScope)
		if row := f.LastRow(t); row.Outcome != keyserver.Refused {
			t.Errorf("the row is %+v", row)
		}
		caller(t, m, admin) // fails if the session is not valid any more

		_, err = m.EndOne(ctx, f.Admin, values.IDFromUint64(99))
		want(t, err, fault.NotFound)
		_, err = m.EndAll(ctx, f.Admin, values.IDFromUint64(99))
		want(t, err, fault.NotFound)
	})
}

func second[A any](_ A, err error) error { return err }

// TestEndingReachesWhatWasMade checks that a session ends on every replica, together with all derived sessions.
func TestEndingReachesWhatWasMade(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		m, other := gated(t, f), gated(t, f)
		gone := func(o session.Opened) {
			t.Helper()
			for _, each := range []*session.Manager{m, other} {
				_, _, err := each.Authenticate(ctx, o.Token, session.Proof{}, session.From{RequestID: "r"})
				want(t, err, fault.SessionNotFound)
			}
		}
		first, stays := open(t, m), open(t, m)
		made := scopedOf(t, m, caller(t, m, first))
		caller(t, other, first)
		caller(t, other, made)
		if n, err := m.EndOne(ctx, f.Admin, first.Info.ID); n != 2 || err != nil {
			t.Errorf("ended %d, %v", n, err)
		}
		gone(first)
		gone(made)
		scopedOf(t, m, caller(t, other, stays))
		if n, err := other.EndAll(ctx, f.Admin, f.Admin.Principal.ID); n != 2 || err != nil {
			t.Errorf("ended %d, %v", n, err)
		}
		gone(stays)
		if row := f.LastRow(t); row.Operation != "endSessions" || row.Object != f.Admin.Principal.ID.Hex() {
			t.Errorf("the row is %+v", row)
		}
	})
}
