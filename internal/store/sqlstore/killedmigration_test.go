package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// victimMigration is an environment variable. It selects the migration in which the process
// is killed, and after how many statements.
const victimMigration = "SQLSTORE_TEST_MIGRATION"

func dieMigrating(place, at string) error {
	var version int64
	var behind int
	if _, err := fmt.Sscan(at, &version, &behind); err != nil {
		return err
	}
	cfg := sqlstore.Config{Dir: place}
	if strings.HasPrefix(place, "postgres") {
		cfg = sqlstore.Config{URL: place}
	}
	return errors.Join(sqlstore.DieMigrating(context.Background(), cfg, version, behind), errors.New("it lives"))
}

// dumped returns the entire schema, and the rows that migrations created.
func dumped(t *testing.T, d database) []string {
	t.Helper()
	queries := []string{
		`SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema()`,
		`SELECT conrelid::regclass || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = current_schema()::regnamespace AND conrelid <> 0`,
		`SELECT table_name || ' ' || ordinal_position || ' ' || column_name || ' ' || data_type || ' ' || is_nullable || ' ' || coalesce(column_default, '')
			FROM information_schema.columns WHERE table_schema = current_schema()`,
	}
	if d.driver == "sqlite" {
		queries = []string{`SELECT coalesce(sql, name) FROM sqlite_schema`, `SELECT 'user_version ' || user_version FROM pragma_user_version`}
	}
	for _, table := range []string{"sequences", "leases"} {
		queries = append(queries, `SELECT '`+table+` ' || name FROM `+table)
	}
	queries = append(queries, `SELECT 'migration ' || version_id FROM keyserver_schema`, `SELECT 'floor ' || floor FROM schema_floor`)
	db, err := sql.Open(d.driver, d.source)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var all []string
	for _, query := range queries {
		for _, row := range allRows(t, db, query, 1) {
			all = append(all, fmt.Sprint(row[0]))
		}
	}
	slices.Sort(all)
	return all
}

// TestKilledMigrating kills the process with SIGKILL in each migration, after its first
// statement and before its commit. The next start continues. The final schema is the same
// as without kills.
func TestKilledMigrating(t *testing.T) {
	for name, make := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calm, d := make(t), make(t)
			closeStore(t, calm.open(t))
			place := d.config.URL
			if place == "" {
				place = d.config.Dir
			}
			for _, version := range sqlstore.Versions() {
				for _, behind := range []int{1, 1 << 10} {
					victim := exec.Command(os.Args[0])
					victim.Env = append(os.Environ(), victimDir+"="+place, fmt.Sprintf("%s=%d %d", victimMigration, version, behind))
					out, err := victim.CombinedOutput()
					if status, ok := victim.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
						t.Fatalf("the migration to %d was not killed: %v\n%s", version, err, out)
					}
				}
				if err := sqlstore.MigrateTo(t.Context(), d.config, version); err != nil {
					t.Fatalf("behind a migration to %d that was killed: %v", version, err)
				}
			}
			closeStore(t, d.open(t))
			if diff := cmp.Diff(dumped(t, calm), dumped(t, d)); diff != "" {
				t.Errorf("the schema (-undisturbed +killed):\n%s", diff)
			}
		})
	}
}
