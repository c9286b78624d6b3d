package session_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// atOnce runs concurrent logins, alternately on each of the managers. It returns how many succeeded. All others must
// fail with SESSION_LIMIT.
func atOnce(t *testing.T, logins int, login func(m *session.Manager) error, managers ...*session.Manager) int {
	t.Helper()
	results, begin := make(chan error, logins), make(chan struct{})
	for i := range logins {
		go func() {
			<-begin
			results <- login(managers[i%len(managers)])
		}()
	}
	close(begin)
	succeeded := 0
	for range logins {
		if err := <-results; err == nil {
			succeeded++
		} else {
			want(t, err, fault.SessionLimit)
		}
	}
	return succeeded
}

func TestQuotasHoldForLoginsAtOnce(t *testing.T) {
	scoped := func(by keyserver.Caller) session.Login {
		return session.Login{Method: keyserver.ScopedSession, Objects: []keyserver.HiddenLink{"a"}, By: &by, From: session.From{RequestID: "r"}}
	}
	for name, tc := range map[string]struct {
		limit func(*session.Config)
		made  bool // derive the session from another one
		want  int  // number of sessions in addition to the first
	}{
		"OfASession":   {func(c *session.Config) { c.MaxDerivedSessions = 3 }, true, 3},
		"OfAPrincipal": {func(c *session.Config) { c.MaxSessionsPerPrincipal = 4 }, false, 3},
		"ShareOfAll":   {func(c *session.Config) { c.MaxSessions = 16 }, true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
				configure := func(c *session.Config) {
					tc.limit(c)
					c.Authorizer = f
				}
				one, other := manager(t, f, configure), manager(t, f, configure)
				by := caller(t, one, open(t, one))
				login := func(m *session.Manager) error {
					l := adminLogin()
					if tc.made {
						l = scoped(by)
					}
					_, err := m.Login(ctx, l)
					return err
				}
				if got := atOnce(t, 9, login, one, other); got != tc.want {
					t.Errorf("%d logins at once succeeded, want %d", got, tc.want)
				}
			})
		})
	}
}

// TestObjectsOfAScopedSession checks that a scoped session names from one to MaxObjects keys.
func TestObjectsOfAScopedSession(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		m := gated(t, f)
		by := caller(t, m, open(t, m))
		for _, objects := range [][]keyserver.HiddenLink{nil, {""}, {"a", ""}, slices.Repeat([]keyserver.HiddenLink{"a"}, session.MaxObjects+1)} {
			_, err := m.Login(ctx, session.Login{Method: keyserver.ScopedSession, Objects: objects, By: &by, From: session.From{RequestID: "r"}})
			want(t, err, fault.BadRequest)
		}
		scopedOf(t, m, by)
	})
}

// TestShareOfAPrincipal checks that derived sessions count for the principal that logged in, even if they have the
// rights of another principal. They do not reduce the share of other principals.
func TestShareOfAPrincipal(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		m := manager(t, f, func(c *session.Config) { c.Authorizer, c.MaxSessions = f, 12 })
		boss := f.Add(t, keyserver.PasswordPrincipal, "boss", []keyserver.ID{keyserver.RoleAuditor}, nil)
		if err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			return tx.SetPrincipalFlags(ctx, boss.Principal.ID, keyserver.FlagEnable|keyserver.FlagDelegation)
		}); err != nil {
			t.Fatal(err)
		}
		first := open(t, m)
		by := caller(t, m, first)
		lent, err := m.Login(ctx, session.Login{Method: keyserver.DelegatedSession, Delegator: boss.Principal.ID, By: &by, From: session.From{RequestID: "r"}})
		if err != nil {
			t.Fatal(err)
		}
		scopedOf(t, m, caller(t, m, lent))
		_, err = m.Login(ctx, adminLogin())
		want(t, err, fault.SessionLimit)
		if got := fault.As(err); got.Scope != fault.ScopeSession || !strings.Contains(got.Detail, "--max-sessions)") {
			t.Errorf("got %+v", got)
		}
		if n, err := f.Store.SessionCountBy(ctx, boss.Principal, f.Clock.Now(), idle); n != 0 || err != nil {
			t.Errorf("the delegator has %d sessions, %v", n, err)
		}
		if err := m.End(ctx, by); err != nil {
			t.Fatal(err)
		}
		open(t, m)
	})
}

// TestMadeFromAnIdleSession checks that a derived session ends when its parent is idle, and releases its place. Use of
// the derived session does not extend the parent.
func TestMadeFromAnIdleSession(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		m := manager(t, f, func(c *session.Config) { c.Authorizer, c.ScopedLifetime = f, lifetime })
		first := open(t, m)
		made := scopedOf(t, m, caller(t, m, first))
		use := func(o session.Opened) error {
			_, release, err := m.Authenticate(ctx, o.Token, session.Proof{}, session.From{RequestID: "r"})
			if err == nil {
				release()
			}
			return err
		}
		for range 2 { // use of the first session extends both
			f.Clock.Advance(idle - 3*time.Second)
			if err := use(first); err != nil {
				t.Fatal(err)
			}
			f.Clock.Advance(2 * time.Second)
			if err := use(made); err != nil {
				t.Fatal(err)
			}
		}
		f.Clock.Advance(idle - 2*time.Second)
		want(t, use(made), fault.SessionExpired)
		again := manager(t, f, func(c *session.Config) { c.Authorizer = f })
		_, _, err := again.Authenticate(ctx, made.Token, session.Proof{}, session.From{RequestID: "r"})
		want(t, err, fault.SessionExpired)
		if n, err := f.Store.SessionCount(ctx, f.Clock.Now(), idle); n != 0 || err != nil {
			t.Errorf("%d sessions are alive, %v", n, err)
		}
		want(t, use(first), fault.SessionExpired)
	})
}
