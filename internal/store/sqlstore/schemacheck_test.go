package sqlstore_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/doctor"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/doctor/storecheck"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

var writeLists = flag.Bool("write", false, "TestSchemaLists writes the lists of the schema instead of comparing them")

// TestSchemaLists checks that the embedded lists match the schema that the migrations create.
func TestSchemaLists(t *testing.T) {
	for _, d := range []database{inDirectory(t), onServer(t)} {
		name, list, err := sqlstore.SchemaList(t.Context(), d.config)
		rig.Must(t, err)
		file := filepath.Join("schema", name+".txt")
		if *writeLists {
			rig.Must(t, os.WriteFile(file, []byte(list), 0o600))
		}
		have, err := os.ReadFile(file)
		rig.Must(t, err)
		if diff := cmp.Diff(string(have), list); diff != "" {
			t.Errorf("%s is not what the migrations make; run go test ./internal/store/sqlstore -run TestSchemaLists -write:\n%s", file, diff)
		}
	}
}

// Reactions to a change of the schema.
const (
	tolerated = "nothing"
	reported  = "a warning"
	refused   = "no start"
)

type schemaChange struct {
	statements []string
	want       string
	undo       []string // on PostgreSQL
}

const (
	doNothing = `CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$`
	dropIt    = `DROP FUNCTION keep CASCADE`
)

var onBoth = map[string]schemaChange{
	"index of somebody else": {[]string{`CREATE INDEX theirs ON sessions (address)`}, reported, []string{`DROP INDEX theirs`}},
	"index is missing":       {[]string{`DROP INDEX sessions_by_parent`}, reported, []string{`CREATE INDEX sessions_by_parent ON sessions (parent_id) WHERE parent_id IS NOT NULL`}},
	"table of somebody else": {[]string{`CREATE TABLE theirs (n INTEGER PRIMARY KEY)`}, tolerated, []string{`DROP TABLE theirs`}},
	"view of somebody else":  {[]string{`CREATE VIEW theirs AS SELECT id FROM sessions`}, tolerated, []string{`DROP VIEW theirs`}},
	"view in the place of a table": {[]string{`ALTER TABLE used_proofs RENAME TO hidden`, `CREATE VIEW used_proofs AS SELECT digest, expires FROM hidden`}, refused,
		[]string{`DROP VIEW used_proofs`, `ALTER TABLE hidden RENAME TO used_proofs`}},
	"table is missing":  {[]string{`ALTER TABLE used_proofs RENAME TO hidden`}, refused, []string{`ALTER TABLE hidden RENAME TO used_proofs`}},
	"column is missing": {[]string{`ALTER TABLE owners RENAME COLUMN since TO hidden`}, refused, []string{`ALTER TABLE owners RENAME COLUMN hidden TO since`}},
}

var onSQLite = map[string]schemaChange{
	"trigger that ignores deletions": {[]string{`CREATE TRIGGER keep BEFORE DELETE ON sessions BEGIN SELECT RAISE(IGNORE); END`}, refused, nil},
	"trigger in other letters":       {[]string{`CREATE TRIGGER keep AFTER INSERT ON "SESSIONS" BEGIN DELETE FROM leases; END`}, refused, nil},
	"trigger with a name of SQLite's": {[]string{`CREATE TRIGGER keep BEFORE DELETE ON sessions BEGIN SELECT RAISE(IGNORE); END`,
		`PRAGMA writable_schema = on`, `UPDATE sqlite_schema SET name = 'sqlite_keep', sql = replace(sql, 'keep', 'sqlite_keep') WHERE name = 'keep'`}, refused, nil},
	"default that is another one": {[]string{`PRAGMA writable_schema = on`,
		`UPDATE sqlite_schema SET sql = replace(sql, 'ended INTEGER NOT NULL DEFAULT 0', 'ended INTEGER NOT NULL DEFAULT 1') WHERE name = 'sessions'`}, refused, nil},
	"reference that deletes":   {[]string{`CREATE TABLE theirs (role_id BLOB REFERENCES ROLES (id) ON DELETE CASCADE)`}, refused, nil},
	"column of somebody else":  {[]string{`ALTER TABLE roles ADD COLUMN theirs TEXT`}, refused, nil},
	"statistics":               {[]string{`ANALYZE`}, tolerated, nil},
	"trigger of another table": {[]string{`CREATE TABLE theirs (n INTEGER)`, `CREATE TRIGGER own AFTER INSERT ON theirs BEGIN SELECT 1; END`}, tolerated, nil},
}

var onPostgres = map[string]schemaChange{
	"trigger that ignores deletions": {[]string{doNothing, `CREATE TRIGGER keep BEFORE DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION keep()`}, refused, []string{dropIt}},
	"constraint trigger": {[]string{doNothing, `CREATE CONSTRAINT TRIGGER keep AFTER DELETE ON sessions DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION keep()`},
		refused, []string{dropIt}},
	"trigger of a partition":      {[]string{doNothing, `CREATE TRIGGER keep BEFORE INSERT ON audit_default FOR EACH ROW EXECUTE FUNCTION keep()`}, refused, []string{dropIt}},
	"triggers that are off":       {[]string{`ALTER TABLE roles DISABLE TRIGGER ALL`}, refused, []string{`ALTER TABLE roles ENABLE TRIGGER ALL`}},
	"rule":                        {[]string{`CREATE RULE keep AS ON DELETE TO sessions DO INSTEAD NOTHING`}, refused, []string{`DROP RULE keep ON sessions`}},
	"policy":                      {[]string{`CREATE POLICY theirs ON sessions USING (false)`}, refused, []string{`DROP POLICY theirs ON sessions`}},
	"row security":                {[]string{`ALTER TABLE sessions ENABLE ROW LEVEL SECURITY`}, refused, []string{`ALTER TABLE sessions DISABLE ROW LEVEL SECURITY`}},
	"child table":                 {[]string{`CREATE TABLE theirs () INHERITS (sessions)`}, refused, []string{`DROP TABLE theirs`}},
	"partition of somebody else":  {[]string{`CREATE TABLE theirs PARTITION OF audit FOR VALUES FROM (900000000000) TO (900000000001)`}, refused, []string{`DROP TABLE theirs`}},
	"reference that deletes":      {[]string{`CREATE TABLE theirs (role_id BYTEA REFERENCES roles (id) ON DELETE CASCADE)`}, refused, []string{`DROP TABLE theirs`}},
	"default that is another one": {[]string{`ALTER TABLE sessions ALTER COLUMN ended SET DEFAULT 1`}, refused, []string{`ALTER TABLE sessions ALTER COLUMN ended SET DEFAULT 0`}},
	"column of somebody else":     {[]string{`ALTER TABLE roles ADD COLUMN theirs TEXT`}, reported, []string{`ALTER TABLE roles DROP COLUMN theirs`}},
	"check of somebody else":      {[]string{`ALTER TABLE roles ADD CONSTRAINT theirs CHECK (name <> 'x')`}, reported, []string{`ALTER TABLE roles DROP CONSTRAINT theirs`}},
	"unlogged table":              {[]string{`ALTER TABLE used_proofs SET UNLOGGED`}, refused, []string{`ALTER TABLE used_proofs SET LOGGED`}},
	"function of a known name":    {[]string{`CREATE FUNCTION count(bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'`}, refused, []string{`DROP FUNCTION count(bigint)`}},
	"operator of a known name": {[]string{`CREATE FUNCTION differs(bytea, text) RETURNS boolean LANGUAGE sql AS 'SELECT false'`,
		`CREATE OPERATOR = (LEFTARG = bytea, RIGHTARG = text, FUNCTION = differs)`}, refused, []string{`DROP FUNCTION differs CASCADE`}},
	"function of a name of its own": {[]string{`CREATE FUNCTION theirs(bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'`}, tolerated, []string{`DROP FUNCTION theirs`}},
	"views of pg_stat_statements": {[]string{`CREATE FUNCTION pg_stat_statements() RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'`,
		`CREATE VIEW pg_stat_statements AS SELECT pg_stat_statements()`}, tolerated, []string{`DROP FUNCTION pg_stat_statements CASCADE`}},
	"partition of the trail": {[]string{`CREATE TABLE audit_until_00000000000900000000 (LIKE audit INCLUDING DEFAULTS INCLUDING INDEXES)`,
		`ALTER TABLE audit ATTACH PARTITION audit_until_00000000000900000000 FOR VALUES FROM (899999999) TO (900000001)`}, tolerated,
		[]string{`DROP TABLE audit_until_00000000000900000000`}},
	"statistics": {[]string{`ANALYZE`, `CREATE STATISTICS theirs ON kind, ended FROM sessions`}, tolerated, []string{`DROP STATISTICS theirs`}},
}

// judge returns how a running server reacts to the schema, and the findings.
func judge(t *testing.T, s *sqlstore.Store) (verdict string, findings []sqldb.SchemaFinding) {
	t.Helper()
	findings, err := s.CheckSchema(t.Context())
	rig.Must(t, err)
	switch {
	case sqldb.Severe(findings) != "":
		return refused, findings
	case len(findings) > 0:
		return reported, findings
	default:
		return tolerated, nil
	}
}

// TestSchemaChanges checks that schema changes that can hide or change rows are severe, and that
// harmless changes by an administrator are no findings.
func TestSchemaChanges(t *testing.T) {
	for _, changes := range []map[string]schemaChange{onBoth, onSQLite} {
		for what, change := range changes {
			t.Run("SQLite/"+what, func(t *testing.T) {
				d := inDirectory(t)
				s := d.open(t)
				defer s.Close()
				d.tamper(t, change.statements...)
				if got, findings := judge(t, s); got != change.want {
					t.Errorf("%s, want %s: %v", got, change.want, findings)
				}
				rig.Must(t, s.Close())
				testVerdict(t, d, change.want)
			})
		}
	}
	d := onServer(t)
	s := d.open(t)
	defer closeStore(t, s)
	for _, changes := range []map[string]schemaChange{onBoth, onPostgres} {
		for what, change := range changes {
			t.Run("PostgreSQL/"+what, func(t *testing.T) {
				d.tamper(t, change.statements...)
				if got, findings := judge(t, s); got != change.want {
					t.Errorf("%s, want %s: %v", got, change.want, findings)
				}
				d.tamper(t, change.undo...)
				if got, findings := judge(t, s); got != tolerated {
					t.Errorf("undone: %v", findings)
				}
			})
		}
	}
	for _, what := range []string{"rule", "check of somebody else", "views of pg_stat_statements"} {
		change := onPostgres[what]
		d.tamper(t, change.statements...)
		testVerdict(t, d, change.want)
		d.tamper(t, change.undo...)
	}
}

// testVerdict checks that a start and doctor have the same result as judge.
func testVerdict(t *testing.T, d database, want string) {
	t.Helper()
	beside, err := sqlstore.OpenReadOnly(t.Context(), d.config)
	if err == nil {
		var out bytes.Buffer
		found := doctor.Run(t.Context(), &out, storecheck.Database(beside, nil)[:1])
		if (found != nil) != (want != tolerated) || found != nil && !errors.Is(found, doctor.ErrFindings) {
			t.Errorf("doctor: %v\n%s", found, out.String())
		}
		rig.Must(t, beside.Close())
	} else if want != refused {
		t.Error(err)
	}
	again, err := sqlstore.Open(t.Context(), d.config)
	switch {
	case err == nil && want == refused:
		t.Error("it starts")
	case err != nil && (want != refused || !errors.Is(err, sqlstore.ErrUnusable)):
		t.Errorf("it does not start: %v", err)
	}
	if err == nil {
		rig.Must(t, again.Close())
	}
}

// TestSchemaOfANewerRelease checks that a newer schema may differ, except by objects that can hide
// or change rows.
func TestSchemaOfANewerRelease(t *testing.T) {
	for name, make := range kinds {
		t.Run(name, func(t *testing.T) {
			d := make(t)
			closeStore(t, d.open(t))
			d.tamper(t, `UPDATE schema_floor SET version = 9999, release = '99.0.0'`, `INSERT INTO keyserver_schema (version_id, is_applied) VALUES (9999, `+map[bool]string{true: "1", false: "true"}[d.driver == "sqlite"]+`)`,
				`ALTER TABLE roles ADD COLUMN of_the_next TEXT`, `CREATE INDEX of_the_next ON roles (of_the_next)`,
				`CREATE TABLE nexts (role_id BYTEA REFERENCES roles (id) ON DELETE CASCADE)`)
			s := d.open(t)
			if findings, err := s.CheckSchema(t.Context()); err != nil || len(findings) > 0 {
				t.Errorf("%v, %v", findings, err)
			}
			closeStore(t, s)
			if d.driver == "sqlite" {
				d.tamper(t, onSQLite["trigger that ignores deletions"].statements...)
			} else {
				d.tamper(t, onPostgres["trigger that ignores deletions"].statements...)
			}
			if _, err := sqlstore.Open(t.Context(), d.config); !errors.Is(err, sqlstore.ErrUnusable) || !strings.Contains(err.Error(), "keep") {
				t.Error(err)
			}
		})
	}
}

// TestHiddenTables checks that tables hidden by another schema in the search path are detected.
func TestHiddenTables(t *testing.T) {
	cfg, admin := onOwnServer(t)
	for what, path := range map[string]string{
		"another schema is searched first":           `theirs, public`,
		"built-in names are searched for at the end": `public, pg_catalog`,
	} {
		t.Run(what, func(t *testing.T) {
			s, err := sqlstore.Open(t.Context(), cfg)
			rig.Must(t, err)
			rig.Must(t, s.Close())
			admin(`CREATE SCHEMA IF NOT EXISTS theirs`)
			admin(`CREATE TABLE IF NOT EXISTS theirs.sessions (LIKE public.sessions)`)
			admin(`ALTER ROLE keyserver SET search_path = ` + path)
			if _, err := sqlstore.Open(t.Context(), cfg); !errors.Is(err, sqlstore.ErrForeign) && !errors.Is(err, sqlstore.ErrUnusable) {
				t.Errorf("it starts: %v", err)
			}
			admin(`ALTER ROLE keyserver RESET search_path`)
		})
	}
}

// TestEndedSessionsAreReadBack checks that the deletion of sessions fails if a trigger keeps their
// rows.
func TestEndedSessionsAreReadBack(t *testing.T) {
	keeps := map[string]map[string][]string{
		"SQLite": {
			"Ignored":      {`CREATE TRIGGER keep BEFORE DELETE ON sessions BEGIN SELECT RAISE(IGNORE); END`, `CREATE TRIGGER keep2 BEFORE UPDATE ON sessions BEGIN SELECT RAISE(IGNORE); END`},
			"IgnoredChild": {`CREATE TRIGGER keep BEFORE DELETE ON sessions WHEN OLD.parent_id IS NOT NULL BEGIN SELECT RAISE(IGNORE); END`, `CREATE TRIGGER keep2 BEFORE UPDATE ON sessions WHEN OLD.parent_id IS NOT NULL BEGIN SELECT RAISE(IGNORE); END`},
			"OpenedAgain":  {`CREATE TRIGGER keep AFTER UPDATE ON sessions BEGIN UPDATE sessions SET ended = 0 WHERE id = NEW.id; END`, `CREATE TRIGGER keep2 BEFORE DELETE ON sessions BEGIN SELECT RAISE(IGNORE); END`},
		},
		"PostgreSQL": {
			"Ignored":      {doNothing, `CREATE TRIGGER keep BEFORE DELETE OR UPDATE ON sessions FOR EACH ROW EXECUTE FUNCTION keep()`},
			"IgnoredChild": {doNothing, `CREATE TRIGGER keep BEFORE DELETE OR UPDATE ON sessions FOR EACH ROW WHEN (OLD.parent_id IS NOT NULL) EXECUTE FUNCTION keep()`},
			"OpenedAgain": {`CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO sessions SELECT OLD.*; RETURN NULL; END $$`,
				`CREATE FUNCTION as_before() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.ended = 0; RETURN NEW; END $$`,
				`CREATE TRIGGER keep AFTER DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION again()`, `CREATE TRIGGER keep2 BEFORE UPDATE ON sessions FOR EACH ROW EXECUTE FUNCTION as_before()`},
		},
	}
	for name, make := range kinds {
		for what, statements := range keeps[name] {
			t.Run(name+"/"+what, func(t *testing.T) {
				d := make(t)
				s := d.open(t)
				defer closeStore(t, s)
				parent, child := session(60), session(61)
				child.Parent = parent.ID
				update(t, s, insertSession(parent), insertSession(child))
				d.tamper(t, statements...)
				for what, end := range map[string]func(context.Context, *sqlstore.Tx) error{
					"one": func(ctx context.Context, tx *sqlstore.Tx) error {
						_, err := tx.DeleteSession(ctx, parent.ID)
						return err
					},
					"those of the principal": func(ctx context.Context, tx *sqlstore.Tx) error {
						_, err := tx.DeleteSessionsOf(ctx, parent.Principal)
						return err
					},
				} {
					if err := tryUpdate(t, s, end); fault.CodeOf(err) != fault.StoreTampered {
						t.Errorf("ending %s: %v", what, err)
					}
				}
			})
		}
	}
}

// BenchmarkSchema measures the time that the comparison adds to a start.
func BenchmarkSchema(b *testing.B) {
	for name, make := range kinds {
		b.Run(name, func(b *testing.B) {
			s := make(b).open(b)
			defer closeStore(b, s)
			for b.Loop() {
				if findings, err := s.CheckSchema(b.Context()); err != nil || len(findings) > 0 {
					b.Fatal(findings, err)
				}
			}
		})
	}
}
