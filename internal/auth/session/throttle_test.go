package session_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

func guess(name, address string) session.Login {
	return session.Login{
		Method: keyserver.PasswordSession, Name: name, Password: "a guess", From: session.From{RequestID: "r", Address: address},
	}
}

// atShippedCost makes a check of the administrator's password take as long as with the default cost. It returns a
// change that configures a manager in this way.
func atShippedCost(t *testing.T, f *enginetest.Fixture) func(*session.Config) {
	t.Helper()
	hash, err := password.DefaultCost().Hash(ctx, enginetest.AdminPassword, rand.Reader)
	if err == nil {
		err = f.Store.Update(ctx, func(tx *sqlstore.Tx) error { return tx.SetPassword(ctx, f.Admin.Principal.ID, hash) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return func(c *session.Config) { c.PasswordCost = password.DefaultCost() }
}

// TestGuessesAtOnce: tokens are taken before the work, so concurrent logins allow no more guesses than sequential
// logins, on one process or two.
func TestGuessesAtOnce(t *testing.T) {
	for name, open := range enginetest.Databases {
		t.Run(name, func(t *testing.T) {
			f := enginetest.New(t, open(t))
			shipped := atShippedCost(t, f)
			replicas := []*session.Manager{manager(t, f, shipped)}
			if f.Store.Shared() {
				replicas = append(replicas, manager(t, f, shipped))
			}
			var mu sync.Mutex
			said := map[fault.Code]int{}
			round := func() {
				var wait sync.WaitGroup
				for i := range 80 {
					wait.Go(func() {
						_, err := replicas[i%len(replicas)].Login(context.Background(), guess("admin", "192.0.2.1"))
						mu.Lock()
						said[fault.CodeOf(err)]++
						mu.Unlock()
					})
				}
				wait.Wait()
			}
			round()
			if n := said[fault.InvalidCredentials]; n > 10 || said[fault.LoginThrottled]+n+said[fault.Overloaded] != 80 {
				t.Errorf("at once: %v", said)
			}
			for range 10 {
				f.Clock.Advance(6 * time.Second)
				round()
			}
			if n := said[fault.InvalidCredentials]; n > 20 || n < 11 {
				t.Errorf("within a minute: %v", said)
			}
		})
	}
}

// TestStrangersLockNobodyOut: a user can log in from a known address after any number of guesses from other addresses,
// on any replica.
func TestStrangersLockNobodyOut(t *testing.T) {
	for name, open := range enginetest.Databases {
		t.Run(name, func(t *testing.T) {
			f := enginetest.New(t, open(t))
			shipped := atShippedCost(t, f)
			m := manager(t, f, shipped)
			if _, err := m.Login(t.Context(), adminLogin()); err != nil {
				t.Fatal(err)
			}
			var err error
			for i := range 70 {
				_, err = m.Login(t.Context(), guess("admin", fmt.Sprintf("198.51.100.%d", i)))
			}
			want(t, err, fault.LoginThrottled) // the bucket of the name is empty
			unknown := adminLogin()
			unknown.Address = "198.51.100.200"
			_, err = m.Login(t.Context(), unknown)
			want(t, err, fault.LoginThrottled)
			for range 30 {
				if _, err = m.Login(t.Context(), adminLogin()); err != nil {
					t.Fatalf("the owner from his own address: %v", err)
				}
			}
			if _, err = manager(t, f, shipped).Login(t.Context(), adminLogin()); err != nil {
				t.Errorf("after a restart: %v", err)
			}
			f.Clock.Advance(31 * 24 * time.Hour)
			for i := range 70 {
				_, _ = m.Login(t.Context(), guess("admin", fmt.Sprintf("198.51.100.%d", i)))
			}
			_, err = m.Login(t.Context(), adminLogin())
			want(t, err, fault.LoginThrottled) // the address is not known any more
		})
	}
}

// TestNeighboursAreOneAddress checks that all addresses of one IPv6 network share a limit of logins, because one
// machine can have very many of them.
func TestNeighboursAreOneAddress(t *testing.T) {
	f := enginetest.New(t, enginetest.Databases["SQLite"](t))
	m := manager(t, f, nil)
	var err error
	for i := range 11 {
		_, err = m.Login(t.Context(), guess("admin", fmt.Sprintf("2001:db8::%d", i)))
	}
	want(t, err, fault.LoginThrottled)
	_, err = m.Login(t.Context(), guess("admin", "2001:db8:0:1::1"))
	want(t, err, fault.InvalidCredentials)
}

// TestRefusedLoginsShareRows: the number of audit rows of refused logins is limited, and the rows count every refusal.
func TestRefusedLoginsShareRows(t *testing.T) {
	f := enginetest.New(t, enginetest.Databases["SQLite"](t))
	m := manager(t, f, nil)
	before := len(f.AllRows(t))
	for range 500 {
		_, _ = m.Login(t.Context(), guess("admin", "192.0.2.1"))
	}
	for i := range 500 { // with many names, the bucket of the address is empty after 60 logins
		_, _ = m.Login(t.Context(), guess(fmt.Sprintf("name-%d", i), "192.0.2.1"))
	}
	m.Close()
	rows := f.AllRows(t)[before:]
	if len(rows) > 70 {
		t.Errorf("%d rows for 1,000 refused logins", len(rows))
	}
	counted := map[string]int64{}
	for _, r := range rows {
		if r.Operation != keyserver.AuditLogin || r.Outcome != keyserver.Refused || r.Address != "192.0.2.1" {
			t.Errorf("a row is %+v", r)
		}
		counted[r.Reason] += r.Times()
	}
	if counted["badCredentials"] != 60 || counted["throttled"] != 940 {
		t.Errorf("the rows count %v", counted)
	}
}

// TestTalliesEnd: counted refusals become a row when their minute is over.
func TestTalliesEnd(t *testing.T) {
	f := enginetest.New(t, enginetest.Databases["SQLite"](t))
	m := manager(t, f, nil)
	for range 3 {
		_, err := m.Login(t.Context(), guess("admin", "192.0.2.1"))
		want(t, err, fault.InvalidCredentials)
	}
	if row := f.LastRow(t); row.Times() != 1 {
		t.Errorf("the first is a row at once: %+v", row)
	}
	f.Clock.Advance(time.Minute)
	_, err := m.Login(t.Context(), guess("admin", "192.0.2.1"))
	want(t, err, fault.InvalidCredentials)
	rows := f.AllRows(t)
	if n := len(rows); rows[n-1].Times() != 1 || rows[n-2].Times() != 2 {
		t.Errorf("the last rows are %+v and %+v", rows[n-2], rows[n-1])
	}
}

// TestRightPasswordsAtOnce: concurrent logins with one name and address wait for each other's tokens. All have the
// correct password, so none is refused.
func TestRightPasswordsAtOnce(t *testing.T) {
	for name, open := range enginetest.Databases {
		t.Run(name, func(t *testing.T) {
			f := enginetest.New(t, open(t))
			m := manager(t, f, atShippedCost(t, f))
			_, err := m.Login(t.Context(), adminLogin())
			want(t, err, "")
			var logins sync.WaitGroup
			for range 30 {
				logins.Go(func() {
					if _, err := m.Login(t.Context(), adminLogin()); err != nil {
						t.Error(err)
					}
				})
			}
			logins.Wait()
		})
	}
}
