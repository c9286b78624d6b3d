package sqlstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// beforeRowMACs is the schema before the migration that alters settings, roles and
// principals, in this order.
const beforeRowMACs = 16

// TestMigrationDeadlock makes PostgreSQL abort a migration because of a deadlock. The other
// session has no deadlock detection and begins to wait first, so the migration is always
// aborted.
func TestMigrationDeadlock(t *testing.T) {
	d := onServer(t)
	rig.Must(t, sqlstore.MigrateTo(t.Context(), d.config, beforeRowMACs))
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), d.source)
		rig.Must(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	exec := func(conn *pgx.Conn, statement string) error {
		_, err := conn.Exec(t.Context(), statement)
		return err
	}
	other, between, witness := connect(), connect(), connect()
	waiting := func(table string) func() bool {
		return func() bool {
			var n int
			rig.Must(t, witness.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE relation = $1::regclass AND NOT granted`, table).Scan(&n))
			return n > 0
		}
	}
	rig.Must(t, exec(other, `SET deadlock_timeout = '1h'`))
	rig.Must(t, exec(other, `BEGIN; LOCK TABLE principals`))
	rig.Must(t, exec(between, `BEGIN; LOCK TABLE roles`))

	opened := make(chan error, 1)
	go func() {
		s, err := sqlstore.Open(t.Context(), d.config)
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	rig.Soon(t, "the migration has settings and waits for roles", waiting("roles"))
	crossed := make(chan error, 1)
	go func() { crossed <- exec(other, `LOCK TABLE settings; COMMIT`) }()
	rig.Soon(t, "the other session waits for settings", waiting("settings"))
	rig.Must(t, exec(between, `COMMIT`))

	rig.Must(t, <-crossed)
	if err := <-opened; err != nil {
		t.Errorf("the migration did not run again after the deadlock: %s", fault.Explain(err))
	}
}

// always is more than the maximum number of attempts of a migration.
const always = 1 << 30

// failing returns a database of an older schema, in which the first statements of migrations
// fail with a code. A sequence counts the statements, because a rollback does not undo its
// increments.
func failing(t *testing.T, code string, statements int) database {
	t.Helper()
	d := onServer(t)
	rig.Must(t, sqlstore.MigrateTo(t.Context(), d.config, beforeRowMACs))
	d.tamper(t, `CREATE SEQUENCE failures`, fmt.Sprintf(`CREATE FUNCTION fail() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
		IF nextval('failures') <= %d THEN RAISE EXCEPTION 'provoked failure' USING ERRCODE = '%s'; END IF; END $$`, statements, code),
		`CREATE EVENT TRIGGER fail ON ddl_command_start WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION fail()`)
	return d
}

func TestMigrationAborted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		code       string
		statements int
		retried    bool
		opened     bool
	}{
		"Deadlock":             {code: "40P01", statements: 2, retried: true, opened: true},
		"SerializationFailure": {code: "40001", statements: 2, retried: true, opened: true},
		"LockTimeout":          {code: "55P03", statements: 2, retried: true, opened: true},
		"EndlessDeadlock":      {code: "40P01", statements: always, retried: true},
		"NoRight":              {code: "42501", statements: always},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := failing(t, test.code, test.statements)
			s, err := sqlstore.Open(t.Context(), d.config)
			if err == nil {
				rig.Must(t, s.Close())
			}
			if opened := err == nil; opened != test.opened {
				t.Fatalf("got %v, want an open store: %t", err, test.opened)
			}
			if err != nil && !strings.Contains(fault.Explain(err), "provoked failure") {
				t.Errorf("the error is not that of the database: %s", fault.Explain(err))
			}
			if retried := d.query(t, `SELECT last_value > 1 FROM failures`)[0] == "true"; retried != test.retried {
				t.Errorf("the migration ran again: %t, want %t", retried, test.retried)
			}
		})
	}
}

// canceler is a log output that cancels a context when a retry of a migration is logged.
type canceler context.CancelFunc

func (c canceler) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "tried again") {
		c()
	}
	return len(line), nil
}

// TestMigrationCanceled cancels a start before it retries a migration.
func TestMigrationCanceled(t *testing.T) {
	d := failing(t, "40P01", always)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d.config.Logger = slog.New(slog.NewTextHandler(canceler(cancel), nil))
	if _, err := sqlstore.Open(ctx, d.config); err == nil || !strings.Contains(fault.Explain(err), "provoked failure") {
		t.Errorf("got %v, want the error of the database", err)
	}
	if tries := d.query(t, `SELECT last_value FROM failures`); tries[0] != "1" {
		t.Errorf("%s statements ran, want 1", tries[0])
	}
}
