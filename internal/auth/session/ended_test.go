package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

func enable(t *testing.T, f *enginetest.Fixture, id keyserver.ID, flags keyserver.Flags) {
	t.Helper()
	if err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error { return tx.SetPrincipalFlags(ctx, id, flags) }); err != nil {
		t.Fatal(err)
	}
}

// TestDisablingEndsSessionsForGood checks that disabling a principal ends its sessions and their derived sessions on
// every replica. They stay ended after repeated requests and after the principal is enabled again.
func TestDisablingEndsSessionsForGood(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		m, other := gated(t, f), gated(t, f)
		first := open(t, m)
		made := scopedOf(t, m, caller(t, m, first))
		caller(t, other, first)
		caller(t, other, made)
		enable(t, f, f.Admin.Principal.ID, 0)
		asks := func(code fault.Code) {
			t.Helper()
			for _, each := range []*session.Manager{m, other} {
				for _, o := range []session.Opened{first, made} {
					_, _, err := each.Authenticate(ctx, o.Token, session.Proof{}, session.From{RequestID: "r"})
					want(t, err, code)
				}
			}
		}
		for range 4 {
			asks(fault.PrincipalOff)
			f.Clock.Advance(idle / 3)
		}
		if row := f.LastRow(t); row.Operation != keyserver.AuditSession || row.Reason != string(fault.ReasonPrincipalDisabled) || row.Outcome != keyserver.Refused {
			t.Errorf("the row is %+v", row)
		}
		enable(t, f, f.Admin.Principal.ID, keyserver.FlagEnable)
		asks(fault.SessionNotFound)
		if n, err := f.Store.SessionCount(ctx, f.Clock.Now(), idle); n != 0 || err != nil {
			t.Errorf("%d sessions count, %v", n, err)
		}
		page, err := m.List(ctx, f.Admin, session.Filter{})
		if err != nil || len(page.Sessions) != 0 {
			t.Errorf("listed: %+v, %v", page, err)
		}
	})
}

// lateDisabler disables a principal after it was authenticated and before its session is stored.
type lateDisabler struct {
	session.Auditor
	disable func()
}

func (l lateDisabler) Write(c context.Context, row keyserver.AuditEntry) error {
	err := l.Auditor.Write(c, row)
	if row.Operation == keyserver.AuditLogin && row.Outcome == keyserver.Allowed {
		l.disable()
	}
	return err
}

// TestALoginDuringDisabling checks that a login opens no session if the principal is disabled before it is stored.
func TestALoginDuringDisabling(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		m := manager(t, f, func(c *session.Config) {
			c.Audit = lateDisabler{f.Rows, func() { enable(t, f, f.Admin.Principal.ID, 0) }}
		})
		_, err := m.Login(ctx, adminLogin())
		want(t, err, fault.InvalidCredentials)
		if row := f.LastRow(t); row.Outcome != keyserver.Refused || row.Reason != string(fault.ReasonPrincipalDisabled) {
			t.Errorf("the row is %+v", row)
		}
		if n, err := f.Store.SessionCount(ctx, f.Clock.Now().Add(-time.Second), idle); n != 0 || err != nil {
			t.Errorf("%d sessions, %v", n, err)
		}
	})
}
