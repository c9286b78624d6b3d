package session_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

const another = "another password than before"

// heldRole stores a role with some operations, without authorization.
func heldRole(t *testing.T, f *enginetest.Fixture, n uint64, operations ...keyserver.Operation) keyserver.ID {
	t.Helper()
	r := keyserver.Role{ID: values.IDFromUint64(n), Name: fmt.Sprint("role ", n)}
	for _, op := range operations {
		r.Operations = append(r.Operations, op.ID)
	}
	if err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error { return tx.InsertRole(ctx, r) }); err != nil {
		t.Fatal(err)
	}
	return r.ID
}

func own(m *session.Manager, by keyserver.Caller, current string) error {
	_, err := m.SetPassword(ctx, by, session.NewPassword{Principal: by.Principal.ID, Password: another, Current: current})
	return err
}

// TestTheOwnPasswordIsShown checks that callers need their current password to change it, and that guesses of it take
// the same tokens as guesses at a login, on one process or two. The session must not be delegated or scoped.
func TestTheOwnPasswordIsShown(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		m, other := gated(t, f), gated(t, f)
		by := caller(t, m, open(t, m))
		by.Address = "198.51.100.1"
		for _, current := range []string{"", enginetest.AdminPassword} {
			narrowed, lent := by, by
			narrowed.Kind, narrowed.Scope = keyserver.ScopedSession, []keyserver.HiddenLink{}
			lent.Kind, lent.Actor = keyserver.DelegatedSession, f.Add(t, keyserver.PasswordPrincipal, "actor"+current, nil, nil).Principal
			for _, each := range []keyserver.Caller{narrowed, lent} {
				if err := own(m, each, current); err == nil {
					t.Errorf("%s set the password of its principal", each.Kind)
				}
			}
		}
		want(t, own(m, by, ""), fault.BadRequest)
		for _, bad := range []string{"short", string(make([]byte, 1025)), "not UTF-8 \xff"} {
			_, err := m.SetPassword(ctx, by, session.NewPassword{Principal: by.Principal.ID, Password: bad, Current: enginetest.AdminPassword})
			want(t, err, fault.BadRequest)
		}
		before := len(f.AllRows(t))
		for i := range 10 {
			on := m
			if f.Store.Shared() && i%2 == 1 {
				on = other
			}
			want(t, own(on, by, "a guess"), fault.InvalidCredentials)
		}
		if rows := f.AllRows(t); len(rows)-before > 2 || rows[before].Operation != "setPassword" || rows[before].Outcome != keyserver.Refused ||
			rows[before].Reason != string(fault.ReasonBadCredentials) || rows[before].Session.IsZero() {
			t.Errorf("the rows are %+v", rows[before:])
		}
		want(t, own(m, by, enginetest.AdminPassword), fault.LoginThrottled) // the correct password, but there are no tokens left
		_, err := m.Login(ctx, guess("admin", by.Address))
		want(t, err, fault.LoginThrottled) // a login takes the same tokens
		if f.Store.Shared() {
			want(t, own(other, by, enginetest.AdminPassword), fault.LoginThrottled)
		}
		f.Clock.Advance(6 * time.Second)
		want(t, own(m, by, enginetest.AdminPassword), "")
	})
}

// TestANewPasswordEndsSessions checks that a change ends every session of the principal on every replica, including the
// caller's own and derived sessions, and that only the new password is valid then.
func TestANewPasswordEndsSessions(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		m, other := gated(t, f), gated(t, f)
		first, second := open(t, m), open(t, other)
		made := scopedOf(t, m, caller(t, m, first))
		caller(t, other, made)
		r, err := m.SetPassword(ctx, caller(t, m, first), session.NewPassword{
			Principal: f.Admin.Principal.ID, Password: another, Current: enginetest.AdminPassword,
		})
		if err != nil || !r.Saved || r.Ended != 3 {
			t.Fatalf("got %+v, %v", r, err)
		}
		if row := f.LastRow(t); row.Operation != "setPassword" || row.Outcome != keyserver.Allowed || row.Object != f.Admin.Principal.ID.Hex() {
			t.Errorf("the row is %+v", row)
		}
		for _, each := range []*session.Manager{m, other} {
			for _, o := range []session.Opened{first, second, made} {
				_, _, err := each.Authenticate(ctx, o.Token, session.Proof{}, session.From{RequestID: "r"})
				want(t, err, fault.SessionNotFound)
			}
			_, err := each.Login(ctx, adminLogin())
			want(t, err, fault.InvalidCredentials)
			l := adminLogin()
			l.Password = another
			_, err = each.Login(ctx, l)
			want(t, err, "")
		}
	})
}

// TestWhoSetsAPassword checks that callers who set another principal's password must be allowed to grant everything
// that it has, because with the password they can act as that principal.
func TestWhoSetsAPassword(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		m := gated(t, f)
		setting := heldRole(t, f, 0x1001, keyserver.OpSetPassword)
		more := heldRole(t, f, 0x1002, keyserver.OpExportKey)
		clerk := f.Add(t, keyserver.PasswordPrincipal, "clerk", []keyserver.ID{setting}, nil)
		plain := f.Add(t, keyserver.PasswordPrincipal, "plain", nil, nil)
		group := f.Add(t, keyserver.GroupPrincipal, "group", []keyserver.ID{more}, nil).Principal.ID
		member := f.Add(t, keyserver.PasswordPrincipal, "member", nil, []keyserver.ID{group})
		colleague := f.Add(t, keyserver.PasswordPrincipal, "colleague", []keyserver.ID{setting}, nil)
		ldap := f.Add(t, keyserver.LDAPPrincipal, "ldap", nil, nil)
		set := func(by keyserver.Caller, id keyserver.ID) error {
			_, err := m.SetPassword(ctx, by, session.NewPassword{Principal: id, Password: another})
			return err
		}
		for name, c := range map[string]struct {
			by   keyserver.Caller
			id   keyserver.ID
			code fault.Code
		}{
			"NoRole":        {plain, clerk.Principal.ID, fault.AccessDenied},
			"Nobody":        {clerk, values.IDFromUint64(99), fault.NotFound},
			"Administrator": {clerk, f.Admin.Principal.ID, fault.Escalation},
			"ByGroup":       {clerk, member.Principal.ID, fault.Escalation},
			"LDAP":          {clerk, ldap.Principal.ID, fault.NoPassword},
			"Group":         {f.Admin, group, fault.NoPassword},
			"OwnLDAP":       {ldap, ldap.Principal.ID, fault.NoPassword},
		} {
			t.Run(name, func(t *testing.T) {
				want(t, set(c.by, c.id), c.code)
				if row := f.LastRow(t); row.Operation != "setPassword" || row.Outcome == keyserver.Allowed {
					t.Errorf("the row is %+v", row)
				}
				if _, err := f.Store.PasswordHash(ctx, c.id); err == nil && c.id != f.Admin.Principal.ID {
					t.Error("it was set after all")
				}
			})
		}
		_, err := m.SetPassword(ctx, clerk, session.NewPassword{Principal: plain.Principal.ID, Password: another, Current: "something"})
		want(t, err, fault.BadRequest)
		want(t, set(clerk, plain.Principal.ID), "")
		want(t, set(clerk, colleague.Principal.ID), "")
		want(t, set(f.Admin, member.Principal.ID), "")
	})
}

// TestALoginDuringAChangeOfPassword checks that a login fails if its password is changed after it was checked. The same
// applies to a change by the owner.
func TestALoginDuringAChangeOfPassword(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		boss := f.Add(t, keyserver.PasswordPrincipal, "boss", []keyserver.ID{keyserver.RoleAdministrator}, nil)
		plain := gated(t, f)
		meanwhile := func(password string) {
			if _, err := plain.SetPassword(ctx, boss, session.NewPassword{Principal: f.Admin.Principal.ID, Password: password}); err != nil {
				t.Error(err)
			}
		}
		late := manager(t, f, func(c *session.Config) {
			c.Authorizer, c.Audit = f, lateDisabler{f.Rows, func() { meanwhile(another) }}
		})
		_, err := late.Login(ctx, adminLogin())
		want(t, err, fault.InvalidCredentials)
		if n, err := f.Store.SessionCount(ctx, f.Clock.Now().Add(-time.Second), idle); n != 0 || err != nil {
			t.Errorf("%d sessions, %v", n, err)
		}

		// The owner has sent the correct password, but another request changes it before the new one is hashed.
		hash, err := f.Store.PasswordHash(ctx, f.Admin.Principal.ID)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.SetPassword(ctx, f.Admin, keyserver.PasswordChange{Principal: f.Admin.Principal.ID, CurrentHash: hash, Hash: func() (string, error) {
			meanwhile("a third password")
			return "never", nil
		}})
		want(t, err, fault.InvalidCredentials)
		l := adminLogin()
		l.Password = "a third password"
		_, err = plain.Login(ctx, l)
		want(t, err, "")
	})
}
