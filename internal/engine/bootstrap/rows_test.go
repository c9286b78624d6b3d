package bootstrap_test

import (
	"context"
	"database/sql"
	"encoding/base64"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gocloud.dev/secrets/localsecrets"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password/passwordtest"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// old is a database of a version without row MACs, and its data key.
type old struct {
	store   *sqlstore.Store
	kek     string
	wrapped []byte
	outside *sql.DB
}

func newOld(t *testing.T, config sqlstore.Config) old {
	t.Helper()
	var kek [32]byte
	keeper := localsecrets.NewKeeper(kek)
	defer keeper.Close()
	wrapped, err := keeper.Encrypt(t.Context(), []byte(strings.Repeat("k", 32)))
	must(t, err)
	store, err := sqlstore.Open(t.Context(), config)
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	file := url.URL{Scheme: "file", OmitHost: true, Path: filepath.Join(config.Dir, "keyserver.db"), RawQuery: "_busy_timeout=10000"}
	driver, source := "sqlite", file.String()
	if config.URL != "" {
		driver, source = "pgx", config.URL
	}
	db, err := sql.Open(driver, source)
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	o := old{store, "base64key://" + base64.StdEncoding.EncodeToString(kek[:]), wrapped, db}
	o.putDataKey(t)
	return o
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (o old) putDataKey(t *testing.T) {
	t.Helper()
	must(t, o.store.Update(t.Context(), func(tx *sqlstore.Tx) error {
		return tx.PutSetting(t.Context(), rowmac.DataKeySetting, o.wrapped)
	}))
}

func (o old) clearMACs(t *testing.T) {
	t.Helper()
	for _, table := range []string{"settings", "roles", "principals"} {
		if _, err := o.outside.ExecContext(t.Context(), `UPDATE `+table+` SET mac = NULL`); err != nil {
			t.Fatal(err)
		}
	}
}

func (o old) start(t *testing.T) (bootstrap.Prepared, error) {
	t.Helper()
	o.store.UseRowKey(nil) // no row key, like the store of another process
	keeper, err := keyring.Open(t.Context(), o.kek)
	must(t, err)
	defer keeper.Close()
	ring, err := keyring.New(t.Context(), keeper, o.store)
	must(t, err)
	clock := &enginetest.Clock{}
	return bootstrap.Run(t.Context(), bootstrap.Config{
		Store: o.store, Keyring: ring, Deployment: keyserver.Unified, ServerName: "test", Hosts: []string{"localhost"},
		AdminPassword: func() (string, error) { return enginetest.AdminPassword, nil }, PasswordCost: passwordtest.Cost, Clock: clock.Now, Random: strings.NewReader(strings.Repeat("random", 10_000)),
	})
}

// TestRowsAreSealedOnce checks that the first start on an older database adds MACs to its rows. If a MAC is removed
// later, no start adds it again.
func TestRowsAreSealedOnce(t *testing.T) {
	for name, database := range enginetest.Databases {
		t.Run(name, func(t *testing.T) {
			o := newOld(t, database(t))
			_, err := o.start(t)
			must(t, err)
			o.clearMACs(t)
			o.putDataKey(t)

			p, err := o.start(t)
			if err != nil || p.Sealed < 10 {
				t.Fatalf("%d rows sealed, %v", p.Sealed, err)
			}
			if p, err := o.start(t); err != nil || p.Sealed != 0 {
				t.Errorf("again: %d rows sealed, %v", p.Sealed, err)
			}
			o.clearMACs(t)
			if p, err := o.start(t); fault.CodeOf(err) != fault.StoreTampered {
				t.Errorf("the MACs were taken away: %d rows sealed, %v", p.Sealed, err)
			}
		})
	}
}

// TestRowsAreNotSealedBesideOthers checks that no MACs are added while a process of an older version runs, because that
// process still writes rows without MACs.
func TestRowsAreNotSealedBesideOthers(t *testing.T) {
	database := enginetest.Databases["PostgreSQL"](t)
	o := newOld(t, database)
	_, err := o.start(t)
	must(t, err)
	o.clearMACs(t)
	o.putDataKey(t)

	older, err := audit.NewWriter(context.Background(), o.store, audit.Options{})
	must(t, err)
	if _, err := o.start(t); err == nil || !strings.Contains(err.Error(), "older version") {
		t.Errorf("beside one: %v", err)
	}
	must(t, older.Close())
	// PostgreSQL releases the lock when it detects the end of the connection.
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		p, err := o.start(t)
		if err == nil && p.Sealed > 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("alone: %d rows sealed, %v", p.Sealed, err)
		}
	}
}
