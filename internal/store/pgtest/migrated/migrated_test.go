package migrated_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/migrated"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestACopyIsWhatTheMigrationsMake compares the schema and rows of a copy of the template with a
// database that a store has migrated.
func TestACopyIsWhatTheMigrationsMake(t *testing.T) {
	copied, made := migrated.Database(t), pgtest.Database(t)
	s, err := sqlstore.Open(t.Context(), sqlstore.Config{URL: made})
	rig.Must(t, err)
	rig.Must(t, s.Close())
	want := content(t, made)
	if len(want) < 100 {
		t.Fatalf("a migrated database has %d objects and rows, which shows nothing", len(want))
	}
	if diff := cmp.Diff(want, content(t, copied)); diff != "" {
		t.Errorf("a copy of the template is not what the migrations make (-want +got):\n%s", diff)
	}
}

func TestCopiesAreApart(t *testing.T) {
	for range 2 {
		conn := connect(t, migrated.Database(t))
		_, err := conn.Exec(t.Context(), `CREATE TABLE mine (n INTEGER)`) // fails if there is one already
		rig.Must(t, err)
	}
}

// content describes the objects of a database, and its rows without their times.
func content(t *testing.T, url string) []string {
	t.Helper()
	conn := connect(t, url)
	all := column(t, conn, `
		SELECT format('%s %s %s %s %s', table_name, column_name, data_type, is_nullable, column_default) FROM information_schema.columns WHERE table_schema = 'public'
		UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
		UNION ALL SELECT format('%s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) FROM pg_constraint WHERE connamespace = 'public'::regnamespace
		UNION ALL SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
		UNION ALL SELECT prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace
		UNION ALL SELECT format('%s %s %s', sequencename, last_value, increment_by) FROM pg_sequences WHERE schemaname = 'public'
		UNION ALL SELECT format('%s %s', relname, reloptions) FROM pg_class WHERE relnamespace = 'public'::regnamespace`)
	for _, table := range column(t, conn, `SELECT tablename FROM pg_tables WHERE schemaname = 'public'`) {
		for _, row := range column(t, conn, `SELECT (to_jsonb(r) - 'tstamp')::text FROM `+pgx.Identifier{table}.Sanitize()+` r`) {
			all = append(all, strings.Join([]string{"row of", table, row}, " "))
		}
	}
	slices.Sort(all)
	return all
}

func column(t *testing.T, conn *pgx.Conn, query string) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), query)
	rig.Must(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	rig.Must(t, err)
	return all
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	rig.Must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
