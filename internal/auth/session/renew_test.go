package session_test

import (
	"bytes"
	"database/sql"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

var raised = password.Cost{MemoryKiB: 64, Passes: 2, Lanes: 1}

func managerAt(t *testing.T, f *enginetest.Fixture, c password.Cost, change func(*session.Config)) *session.Manager {
	t.Helper()
	return manager(t, f, func(config *session.Config) {
		config.Authorizer, config.PasswordCost = f, c
		if change != nil {
			change(config)
		}
	})
}

func adminHash(t *testing.T, f *enginetest.Fixture) string {
	t.Helper()
	hash, err := f.Store.PasswordHash(ctx, f.Admin.Principal.ID)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// likeness returns the two digests that an approval of a request about the administrator uses to detect changes.
func likeness(t *testing.T, f *enginetest.Fixture) [2][32]byte {
	t.Helper()
	seen := f.Store.Recording()
	if _, err := seen.Principal(ctx, f.Admin.Principal.ID); err != nil {
		t.Fatal(err)
	}
	credentials, err := f.Store.CredentialsOf(ctx, []keyserver.ID{f.Admin.Principal.ID})
	if err != nil {
		t.Fatal(err)
	}
	return [2][32]byte{rowmac.Digest(seen.Rows), rowmac.Digest(credentials)}
}

// TestALoginRenewsAnOutdatedHash: all logins still work after the cost is raised. The next successful login of an
// enabled principal stores a hash with the new cost, once, and ends no session. For approvals, the principal is
// unchanged.
func TestALoginRenewsAnOutdatedHash(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		m := managerAt(t, f, raised, nil)
		old, like := adminHash(t, f), likeness(t, f)
		open(t, gated(t, f))
		if !raised.Outdated(old) || adminHash(t, f) != old {
			t.Fatalf("the fixture has the hash %s, and after a login %s", old, adminHash(t, f))
		}

		_, err := m.Login(ctx, guess("admin", "192.0.2.1"))
		want(t, err, fault.InvalidCredentials)
		enable(t, f, f.Admin.Principal.ID, 0)
		_, err = m.Login(ctx, adminLogin())
		want(t, err, fault.InvalidCredentials)
		if adminHash(t, f) != old {
			t.Error("a refused login renewed the hash")
		}

		enable(t, f, f.Admin.Principal.ID, keyserver.FlagEnable)
		before := open(t, gated(t, f))
		for range 2 {
			caller(t, m, open(t, m))
		}
		caller(t, m, before)
		renewed := adminHash(t, f)
		if renewed == old || raised.Outdated(renewed) || !password.Same(renewed, old) {
			t.Errorf("from %s to %s", old, renewed)
		}
		if likeness(t, f) != like {
			t.Error("an approval that names the principal would be refused")
		}
		open(t, m)
		if adminHash(t, f) != renewed {
			t.Error("the hash was renewed again")
		}
		_, err = m.Login(ctx, guess("admin", "192.0.2.1"))
		want(t, err, fault.InvalidCredentials)
	})
}

// TestARenewedHashIsTheSamePassword: if one login renews the hash, another login that was checked with the old hash
// still opens its session. After a login with the password, its owner can still change it.
func TestARenewedHashIsTheSamePassword(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		m, old := managerAt(t, f, raised, nil), adminHash(t, f)
		late := managerAt(t, f, password.Cost{MemoryKiB: 128, Passes: 1, Lanes: 1}, func(c *session.Config) {
			c.Audit = lateDisabler{f.Rows, func() { open(t, m) }}
		})
		caller(t, late, open(t, late))
		if raised.Outdated(adminHash(t, f)) {
			t.Error("of two renewals, the later one counts")
		}
		_, err := f.SetPassword(ctx, f.Admin, keyserver.PasswordChange{
			Principal: f.Admin.Principal.ID, CurrentHash: old, Hash: func() (string, error) { return "", nil },
		})
		want(t, err, "")
	})
}

// TestRenewingLosesToAChange: if the password has been changed, a renewal has no effect.
func TestRenewingLosesToAChange(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		old := adminHash(t, f)
		m := managerAt(t, f, raised, nil)
		if _, err := m.SetPassword(ctx, caller(t, m, open(t, gated(t, f))), session.NewPassword{
			Principal: f.Admin.Principal.ID, Password: another, Current: enginetest.AdminPassword,
		}); err != nil {
			t.Fatal(err)
		}
		changed := adminHash(t, f)
		err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error {
			return tx.RenewPasswordHash(ctx, f.Admin.Principal.ID, old, "never")
		})
		if err != sqlstore.ErrNotFound || adminHash(t, f) != changed { //nolint:errorlint // it is not wrapped
			t.Errorf("got %v, and the hash is %s", err, adminHash(t, f))
		}
	})
}

// TestALoginOutlivesAFailedRenewal: if the new password hash cannot be computed or stored, the login succeeds, and the
// failure is logged without a secret.
func TestALoginOutlivesAFailedRenewal(t *testing.T) {
	for name, cost := range map[string]password.Cost{
		"NotMade":   {MemoryKiB: 1},
		"NotStored": raised,
	} {
		t.Run(name, func(t *testing.T) {
			database := enginetest.Databases["SQLite"](t)
			f := enginetest.New(t, database)
			db, err := sql.Open("sqlite", filepath.Join(database.Dir, sqlite.DatabaseFile))
			if err != nil {
				t.Fatal(err)
			}
			if _, err = db.ExecContext(ctx, `CREATE TRIGGER stays BEFORE UPDATE OF password_hash ON principals BEGIN SELECT RAISE(FAIL, 'the volume is full'); END`); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			old := adminHash(t, f)
			m := managerAt(t, f, cost, func(c *session.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			caller(t, m, open(t, m))
			if adminHash(t, f) != old {
				t.Error("the hash is another one")
			}
			if said := log.String(); strings.Count(said, "cannot renew a password hash") != 1 || strings.Contains(said, "argon2id") || strings.Contains(said, enginetest.AdminPassword) {
				t.Errorf("the log says %s", said)
			}
		})
	}
}
