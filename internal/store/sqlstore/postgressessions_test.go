package sqlstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// administrator returns a function that changes a database without the store.
func administrator(t *testing.T, url string) func(text string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	rig.Must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	_, err = conn.Exec(t.Context(), `SET default_transaction_read_only = off; SET statement_timeout = 0`)
	rig.Must(t, err)
	return func(text string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), text, pgx.QueryExecModeSimpleProtocol)
		rig.Must(t, err)
	}
}

// onOwnServer returns a database whose settings can be changed without effect on other tests.
func onOwnServer(t *testing.T) (config sqlstore.Config, admin func(string)) {
	url := pgtest.Start(t).Database(t)
	return sqlstore.Config{URL: url}, administrator(t, url)
}

const endOtherSessions = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`

// storeOnOwnServer opens a store and an audit writer on a server of the test.
func storeOnOwnServer(t *testing.T) (cfg sqlstore.Config, admin func(string), s *sqlstore.Store, w *audit.Writer) {
	t.Helper()
	cfg, admin = onOwnServer(t)
	s, err := sqlstore.Open(t.Context(), cfg)
	rig.Must(t, err)
	t.Cleanup(func() { closeStore(t, s) })
	s.UseRowKey(rowKey(t))
	w = openWriter(t, s, audit.Options{})
	t.Cleanup(func() { closeWriter(t, w) })
	return cfg, admin, s, w
}

// TestSettingsOfSessionsChange checks that sessions are replaced when settings of the role or
// the database break their statements, and when these settings are reset.
func TestSettingsOfSessionsChange(t *testing.T) {
	for name, tc := range map[string]struct{ set, reset string }{
		"ReadOnly": {`ALTER DATABASE %s SET default_transaction_read_only = on`, `ALTER DATABASE %s RESET default_transaction_read_only`},
		"NoTables": {`ALTER ROLE keyserver SET search_path = nowhere`, `ALTER ROLE keyserver RESET search_path`},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, admin, s, w := storeOnOwnServer(t)
			u, err := pgx.ParseConfig(cfg.URL)
			rig.Must(t, err)
			admin(strings.ReplaceAll(tc.set, "%s", u.Database))
			admin(endOtherSessions)
			rig.Soon(t, "it fails under the new settings", func() bool { return s.Writable(t.Context()) != nil })
			_ = tryUpdate(t, s, insertRole(role(1, "one")))
			_ = w.Write(t.Context(), row("hmacData", "", 1))
			admin(strings.ReplaceAll(tc.reset, "%s", u.Database))
			n := uint64(10)
			for what, try := range map[string]func() error{
				"the look":        func() error { return s.Writable(t.Context()) },
				"a transaction":   func() error { n++; return tryUpdate(t, s, insertRole(role(n, "role"))) },
				"the audit chain": func() error { return w.Write(t.Context(), row("hmacData", "", 1)) },
				"a read":          func() error { _, err := s.Roles(t.Context()); return err },
			} {
				rig.Soon(t, what+" works again", func() bool { return try() == nil })
			}
		})
	}
}

// TestSessionsAreReplacedWhenSettingsChange checks that sessions without errors are replaced, too.
func TestSessionsAreReplacedWhenSettingsChange(t *testing.T) {
	cfg, admin, s, w := storeOnOwnServer(t)
	use := func() {
		t.Helper()
		rig.Must(t, w.Write(t.Context(), row("hmacData", "", 1)))
		rig.Must(t, tryUpdate(t, s, func(ctx context.Context, tx *sqlstore.Tx) error { return tx.PutSetting(ctx, "x", []byte{1}) }))
		rig.Must(t, s.Writable(t.Context()))
	}
	use()
	began := time.Now()
	admin(`ALTER ROLE keyserver SET work_mem = '8MB'`)
	conn, err := pgx.Connect(t.Context(), cfg.URL)
	rig.Must(t, err)
	defer conn.Close(context.Background())
	rig.Soon(t, "only the listener is from before", func() bool {
		use()
		var before int
		rig.Must(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND application_name = 'keyserver-operator' AND query NOT LIKE 'LISTEN%' AND backend_start < $1`, began).Scan(&before))
		return before == 0
	})
}

// TestReadOnlyStart checks that a failed start reports the error of the database.
func TestReadOnlyStart(t *testing.T) {
	cfg, admin := onOwnServer(t)
	u, err := pgx.ParseConfig(cfg.URL)
	rig.Must(t, err)
	admin(`ALTER DATABASE ` + u.Database + ` SET default_transaction_read_only = on`)
	s, err := sqlstore.Open(t.Context(), cfg)
	if err == nil {
		closeStore(t, s)
		t.Fatal("it started")
	}
	if text := fault.Explain(err); !strings.Contains(text, "read-only transaction (SQLSTATE 25006)") {
		t.Error(text)
	}
}
