package sqlstore_test

import (
	"database/sql"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// expandedSince is the last migration before the rule of ADR 56. Later migrations only add.
// They may remove something if a release supports both the old and the new shape.
const expandedSince = 33

// contractOf matches the line that marks a migration as a contract of another migration.
// A contract removes what that migration, the expand, has replaced.
var contractOf = regexp.MustCompile(`(?m)^-- contract of ([0-9]{5})$`)

// column describes a column. spare means that a row can be inserted without the column.
type column struct {
	kind            string
	nullable, spare bool
}

// shape is the part of a schema that programs rely on: columns by table and name, and
// unique columns.
type shape struct {
	columns map[string]map[string]column
	unique  map[string]bool
}

func shapeOf(t *testing.T, d database) shape {
	t.Helper()
	db, err := sql.Open(d.driver, d.source)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	return shapeIn(t, d.driver, db)
}

func shapeIn(t *testing.T, driver string, db *sql.DB) shape {
	t.Helper()
	columns, unique := `SELECT table_name, column_name, data_type, is_nullable = 'YES', column_default IS NOT NULL
		FROM information_schema.columns WHERE table_schema = current_schema()`,
		`SELECT tablename, substring(indexdef from ' USING .*$') FROM pg_indexes WHERE schemaname = current_schema() AND indexdef LIKE 'CREATE UNIQUE %'`
	if driver == "sqlite" {
		columns = `SELECT m.name, c.name, c.type, c."notnull" = 0, c.dflt_value IS NOT NULL
			FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'`
		unique = `SELECT m.name, (SELECT group_concat(i.name, ',') FROM pragma_index_info(l.name) i) || l.partial
			FROM sqlite_schema m, pragma_index_list(m.name) l WHERE m.type = 'table' AND l."unique" = 1`
	}
	out := shape{columns: map[string]map[string]column{}, unique: map[string]bool{}}
	each := func(query string, row func(*sql.Rows) error) {
		t.Helper()
		rows, err := db.QueryContext(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			if err := row(rows); err != nil {
				t.Fatal(err)
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	each(columns, func(rows *sql.Rows) error {
		var table, name string
		var c column
		err := rows.Scan(&table, &name, &c.kind, &c.nullable, &c.spare)
		c.spare = c.spare || c.nullable
		if out.columns[table] == nil {
			out.columns[table] = map[string]column{}
		}
		out.columns[table][name] = c
		return err
	})
	each(unique, func(rows *sql.Rows) error {
		var table, what string
		err := rows.Scan(&table, &what)
		out.unique[table+" "+what] = true
		return err
	})
	return out
}

// breaks lists the changes that break programs that know only the schema before.
func breaks(before, after shape) (all []string) {
	for table, columns := range before.columns {
		now, ok := after.columns[table]
		if !ok {
			all = append(all, "table "+table+" is gone")
			continue
		}
		for name, was := range columns {
			is, ok := now[name]
			switch {
			case !ok:
				all = append(all, fmt.Sprintf("column %s.%s is gone", table, name))
			case is.kind != was.kind:
				all = append(all, fmt.Sprintf("column %s.%s is %s, was %s", table, name, is.kind, was.kind))
			case was.nullable && !is.nullable:
				all = append(all, fmt.Sprintf("column %s.%s must not be NULL any more", table, name))
			case was.spare && !is.spare:
				all = append(all, fmt.Sprintf("column %s.%s has no default any more", table, name))
			}
		}
		for name, is := range now {
			if _, there := columns[name]; !there && !is.spare {
				all = append(all, fmt.Sprintf("column %s.%s is new, and a row cannot be inserted without it", table, name))
			}
		}
	}
	for what := range after.unique {
		if table, _, _ := strings.Cut(what, " "); !before.unique[what] && before.columns[table] != nil {
			all = append(all, "new and unique: "+what)
		}
	}
	slices.Sort(all)
	return all
}

// TestWhatBreaksOlderPrograms checks that breaks finds such changes on both databases.
func TestWhatBreaksOlderPrograms(t *testing.T) {
	for name, make := range kinds {
		t.Run(name, func(t *testing.T) {
			d := make(t)
			closeStore(t, d.open(t))
			for _, step := range []struct{ statement, want string }{
				{`CREATE TABLE added (n INTEGER NOT NULL)`, ""},
				{`ALTER TABLE roles ADD COLUMN added TEXT`, ""},
				{`ALTER TABLE roles ADD COLUMN spare TEXT NOT NULL DEFAULT ''`, ""},
				{`CREATE INDEX roles_by_added ON roles (added)`, ""},
				{`CREATE UNIQUE INDEX roles_by_spare ON roles (spare, id)`, "new and unique: roles"},
				{`ALTER TABLE owners DROP COLUMN since`, "column owners.since is gone"},
				{`ALTER TABLE owners RENAME COLUMN owner TO who`, "column owners.owner is gone"},
				{`ALTER TABLE owners RENAME TO masters`, "table owners is gone"},
				{`DROP TABLE used_proofs`, "table used_proofs is gone"},
			} {
				before := shapeOf(t, d)
				d.tamper(t, step.statement)
				if got := strings.Join(breaks(before, shapeOf(t, d)), "; "); !strings.HasPrefix(got, step.want) || (got == "") != (step.want == "") {
					t.Errorf("%s: got %q, want %q", step.statement, got, step.want)
				}
			}
		})
	}
}

// TestMigrationsExpand checks that a migration only adds, unless it is marked as a contract.
// A contract needs a release with both shapes. It must also raise the schema floor, so that
// programs that are older than the expand reject the database (ADR 56).
func TestMigrationsExpand(t *testing.T) {
	for name, tc := range map[string]struct {
		make newDatabase
		dir  string
	}{"SQLite": {inDirectory, "sqlite"}, "PostgreSQL": {onServer, "postgres"}} {
		t.Run(name, func(t *testing.T) {
			d := tc.make(t)
			floor := func() (n int64) {
				t.Helper()
				db, err := sql.Open(d.driver, d.source)
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				if err := db.QueryRowContext(t.Context(), `SELECT floor FROM schema_floor`).Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n
			}
			var before shape
			at := int64(0)
			for _, version := range sqlstore.Versions() {
				if version <= expandedSince {
					at = version
					continue
				}
				if before.columns == nil {
					if err := sqlstore.MigrateTo(t.Context(), d.config, at); err != nil {
						t.Fatal(err)
					}
					before = shapeOf(t, d)
				}
				if err := sqlstore.MigrateTo(t.Context(), d.config, version); err != nil {
					t.Fatal(err)
				}
				after := shapeOf(t, d)
				text, err := sqlstore.MigrationText(tc.dir, version)
				if err != nil {
					t.Fatal(err)
				}
				least := int64(0)
				if expand := contractOf.FindStringSubmatch(text); expand != nil {
					if least, err = strconv.ParseInt(expand[1], 10, 64); err != nil {
						t.Fatal(err)
					}
					if !slices.ContainsFunc(sqlstore.Releases(), func(r sqlstore.Release) bool { return least <= r.Schema && r.Schema < version }) {
						t.Errorf("migration %d says that it is a contract of %d, and no release had the one without the other", version, least)
					}
				} else if found := breaks(before, after); len(found) > 0 {
					t.Errorf("migration %d breaks programs of the release before, and has no line \"-- contract of NNNNN\": %s", version, strings.Join(found, "; "))
				}
				if _, there := after.columns["schema_floor"]; there && floor() < least {
					t.Errorf("migration %d says that it is a contract of %d, and leaves the floor at %d", version, least, floor())
				}
				before = after
			}
			if len(before.columns) == 0 || !slices.Contains(slices.Collect(maps.Keys(before.columns)), "schema_floor") {
				t.Fatal("no migration was looked at")
			}
		})
	}
}
