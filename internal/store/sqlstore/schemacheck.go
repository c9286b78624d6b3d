package sqlstore

import (
	"context"
	"embed"
	"fmt"
	"strings"
)

// The schema that the migrations make, as schemaOf lists it. TestSchemaLists writes the files.
//
//go:embed schema
var schemaLists embed.FS

// schemaKind is a kind of what a schema holds.
type schemaKind string

// The kinds. Both databases have tables, indexes, triggers and references.
const (
	kindTable      schemaKind = "table"
	kindColumn     schemaKind = "column"
	kindConstraint schemaKind = "constraint"
	kindIndex      schemaKind = "index"
	kindReference  schemaKind = "foreign key" // of one of our tables, or to one
	kindTrigger    schemaKind = "trigger"
	kindRule       schemaKind = "rule"
	kindPolicy     schemaKind = "row security policy"
	kindChild      schemaKind = "child table"
	kindShadow     schemaKind = "name that hides it" // of a table in the search path
	kindFunction   schemaKind = "function or operator with the name of a built-in one"
	kindPath       schemaKind = "search path"
)

// intrusive are the kinds that no release makes on its tables. Each of them can hide or
// change what the key server reads and writes.
var intrusive = map[schemaKind]bool{
	kindTrigger: true, kindRule: true, kindPolicy: true, kindChild: true, kindShadow: true, kindFunction: true, kindPath: true,
}

// relied are the kinds whose absence or change alters what statements do. A difference in any
// other kind, such as an index, alters how fast they are or what they refuse.
var relied = map[schemaKind]bool{kindTable: true, kindColumn: true, kindReference: true}

// schemaObject is one thing in a schema that concerns our tables.
type schemaObject struct {
	kind        schemaKind
	table, name string // name is empty for a table
	definition  string
}

func (o schemaObject) key() schemaObject {
	return schemaObject{kind: o.kind, table: o.table, name: o.name}
}

// line is the form of an object in a list.
func (o schemaObject) line() string {
	return strings.Join([]string{string(o.kind), o.table, o.name, o.definition}, "\t")
}

// String names it to people.
func (o schemaObject) String() string {
	switch {
	case o.table == "":
		return fmt.Sprintf("%s %q", o.kind, o.name)
	case o.name == "":
		return fmt.Sprintf("%s %q", o.kind, o.table)
	default:
		return fmt.Sprintf("%s %q of table %q", o.kind, o.name, o.table)
	}
}

// SchemaFinding is a difference between the schema of a database and the schema that the
// migrations make.
type SchemaFinding struct {
	Text string // for people
	// Severe: it can hide or change what the key server reads and writes, so that no server
	// works on the database.
	Severe bool
}

// schemaList reads a list, and the tables in it.
func schemaList(name string) (list []schemaObject, tables []string, err error) {
	text, err := schemaLists.ReadFile("schema/" + name + ".txt")
	if err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(string(text)) {
		part := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 4)
		if len(part) != 4 {
			return nil, nil, fmt.Errorf("the embedded list of the schema has the line %q", line)
		}
		o := schemaObject{schemaKind(part[0]), part[1], part[2], part[3]}
		list = append(list, o)
		if o.kind == kindTable {
			tables = append(tables, o.table)
		}
	}
	return list, tables, nil
}

// compareSchemas returns how a schema differs from the one of the migrations. A newer release
// may have added to its schema and changed it; only intrusive objects are findings there.
func compareSchemas(want, is []schemaObject, newer bool) (all []SchemaFinding) {
	wanted := map[schemaObject]string{}
	for _, o := range want {
		wanted[o.key()] = o.definition
	}
	found := map[schemaObject]bool{}
	for _, o := range is {
		found[o.key()] = true
		definition, known := wanted[o.key()]
		switch {
		case intrusive[o.kind]:
			all = append(all, SchemaFinding{"the database has the " + o.String() + ", which no release makes", true})
		case newer, known && definition == o.definition:
		case known:
			all = append(all, SchemaFinding{"the " + o.String() + " differs from what the migrations make", relied[o.kind]})
		default:
			all = append(all, SchemaFinding{"the database has the " + o.String() + ", which the migrations do not make", o.kind == kindReference})
		}
	}
	for _, o := range want {
		if !newer && !found[o.key()] {
			all = append(all, SchemaFinding{"the " + o.String() + " is missing", relied[o.kind]})
		}
	}
	return all
}

// CheckSchema returns how the schema of the database differs from the one that the migrations
// of this program make.
func (s *Store) CheckSchema(ctx context.Context) ([]SchemaFinding, error) {
	want, tables, err := schemaList(s.dialect.name())
	if err != nil {
		return nil, err
	}
	is, err := s.dialect.schemaOf(ctx, s.statements, tables)
	if err == nil && s.dialect.shared() {
		err = s.look(ctx) // a newer release may have come just now
	}
	if err != nil {
		return nil, err
	}
	return compareSchemas(want, is, s.Ahead() != ""), nil
}

// Severe returns one sentence about the severe findings, or "" if there are none.
func Severe(findings []SchemaFinding) string {
	var first string
	n := 0
	for _, f := range findings {
		if f.Severe {
			if n++; n == 1 {
				first = f.Text
			}
		}
	}
	switch n {
	case 0:
		return ""
	case 1:
		return first + "; find out who made this change, and undo it (docs/runbook.md)"
	default:
		return fmt.Sprintf("%s, and %d more such changes (doctor lists them); find out who made them, and undo them (docs/runbook.md)", first, n-1)
	}
}

// refuseSchema refuses a database whose schema somebody else has changed, and logs the changes
// that do no harm.
func (s *Store) refuseSchema(ctx context.Context) error {
	findings, err := s.CheckSchema(ctx)
	if err != nil {
		return fmt.Errorf("compare the schema of the database: %w", err)
	}
	if text := Severe(findings); text != "" {
		return refuse(ErrUnusable, "%s", text)
	}
	for _, f := range findings {
		s.cfg.Logger.WarnContext(ctx, "the schema of the database is not as the migrations make it", "difference", f.Text)
	}
	return nil
}

// scanSchema collects the rows of a query for schema objects: kind, table, name, definition.
func scanSchema(ctx context.Context, in statements, text string, args ...any) (list []schemaObject, err error) {
	err = in.each(ctx, text, args, func(row scanner) error {
		var o schemaObject
		err := row.Scan(&o.kind, &o.table, &o.name, &o.definition)
		o.definition = strings.Join(strings.Fields(o.definition), " ")
		if o.table == versionTable { // restored databases keep the names that it had until they were whole
			o.name = strings.ReplaceAll(o.name, "_"+restoringSuffix, "")
			o.definition = strings.ReplaceAll(o.definition, "_"+restoringSuffix, "")
		}
		list = append(list, o)
		return err
	})
	return list, err
}

// sqliteSchema lists all tables with what belongs to them. Names of SQLite's own are left out,
// but not those of triggers: SQLite has none, and whoever writes to the file may choose any.
const sqliteSchema = `SELECT CASE type WHEN 'view' THEN 'table' ELSE type END, lower(tbl_name), CASE WHEN type IN ('table', 'view') THEN '' ELSE name END, coalesce(sql, '')
		FROM sqlite_schema WHERE type = 'trigger' OR name NOT LIKE 'sqlite\_%' ESCAPE '\'
	UNION ALL SELECT 'foreign key', lower(k."table"), 'of ' || m.name, '' FROM sqlite_schema m, pragma_foreign_key_list(m.name) k WHERE m.type = 'table'
	ORDER BY 1, 2, 3, 4`

func (d *sqlite) name() string { return "sqlite" }

func (d *sqlite) schemaOf(ctx context.Context, in statements, tables []string) ([]schemaObject, error) {
	all, err := scanSchema(ctx, in, sqliteSchema)
	if err != nil {
		return nil, err
	}
	ours := map[string]bool{}
	for _, t := range tables {
		ours[t] = true
	}
	var list []schemaObject
	seen := map[schemaObject]bool{}
	for _, o := range all {
		// The foreign keys of our own tables are in the definitions of these.
		if !seen[o] && (len(tables) == 0 || ours[o.table]) && (o.kind != kindReference || !ours[strings.ToLower(strings.TrimPrefix(o.name, "of "))] && len(tables) > 0) {
			list = append(list, o)
		}
		seen[o] = true
	}
	return list, nil
}

// postgresSchema lists what concerns the tables $1; all tables if that is NULL. The partitions
// of the audit trail come and go; only intrusive objects on them are listed. Members of
// extensions are no concern.
const postgresSchema = `WITH place AS (SELECT oid FROM pg_namespace WHERE nspname = current_schema()),
	parts AS (SELECT c.oid, c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent
		WHERE p.relname = 'audit' AND p.relnamespace = (SELECT oid FROM place) AND c.relispartition AND c.relnamespace = p.relnamespace
		AND (c.relname = 'audit_default' OR c.relname ~ '^audit_until_[0-9]{20}$')),
	ours AS (SELECT c.oid, c.relname, c.relkind, c.relpersistence, c.relrowsecurity FROM pg_class c WHERE c.relnamespace = (SELECT oid FROM place) AND c.oid NOT IN (SELECT oid FROM parts)
		AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND ($1::text[] IS NULL OR c.relname = ANY ($1::text[]))),
	every AS (SELECT oid, relname FROM ours UNION ALL SELECT oid, relname FROM parts)
	SELECT 'table', relname::text, '', relkind::text || relpersistence::text || CASE WHEN relrowsecurity THEN ' with row security' ELSE '' END FROM ours
	UNION ALL SELECT 'column', t.relname, a.attname, format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
			|| a.attidentity::text || a.attgenerated::text || coalesce(' DEFAULT ' || pg_get_expr(v.adbin, v.adrelid), '')
		FROM ours t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped LEFT JOIN pg_attrdef v ON v.adrelid = t.oid AND v.adnum = a.attnum
	UNION ALL SELECT CASE k.contype WHEN 'f' THEN 'foreign key' ELSE 'constraint' END, t.relname, k.conname, pg_get_constraintdef(k.oid)
		FROM ours t JOIN pg_constraint k ON k.conrelid = t.oid WHERE k.contype IN ('p', 'u', 'c', 'x', 'f')
	UNION ALL SELECT 'foreign key', t.relname, k.conname || ' of ' || k.conrelid::regclass, pg_get_constraintdef(k.oid)
		FROM ours t JOIN pg_constraint k ON k.confrelid = t.oid WHERE k.contype = 'f' AND k.conrelid NOT IN (SELECT oid FROM ours)
	UNION ALL SELECT 'index', t.relname, i.indexrelid::regclass::text, replace(pg_get_indexdef(i.indexrelid), ' ' || quote_ident(current_schema()) || '.', ' ')
			|| CASE WHEN i.indisvalid THEN '' ELSE ' INVALID' END
		FROM ours t JOIN pg_index i ON i.indrelid = t.oid
	UNION ALL SELECT 'trigger', t.relname, g.tgname, pg_get_triggerdef(g.oid) FROM every t JOIN pg_trigger g ON g.tgrelid = t.oid WHERE NOT g.tgisinternal OR g.tgenabled <> 'O'
	UNION ALL SELECT 'rule', t.relname, r.rulename, pg_get_ruledef(r.oid) FROM every t JOIN pg_rewrite r ON r.ev_class = t.oid WHERE r.rulename <> '_RETURN'
	UNION ALL SELECT 'row security policy', t.relname, p.polname, '' FROM every t JOIN pg_policy p ON p.polrelid = t.oid
	UNION ALL SELECT 'child table', t.relname, i.inhrelid::regclass::text, '' FROM every t JOIN pg_inherits i ON i.inhparent = t.oid WHERE i.inhrelid NOT IN (SELECT oid FROM parts)
	UNION ALL SELECT 'name that hides it', relname, relname, '' FROM every WHERE NOT pg_table_is_visible(oid)
	UNION ALL SELECT 'search path', '', current_setting('search_path'), ''
		WHERE (SELECT s FROM unnest(current_schemas(true)) WITH ORDINALITY AS path(s, n) WHERE s::text NOT LIKE 'pg_temp%' ORDER BY n LIMIT 1) <> 'pg_catalog'
	UNION ALL SELECT 'function or operator with the name of a built-in one', '', p.oid::regprocedure::text, ''
		FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace AND n.nspname = ANY (current_schemas(false)) AND n.nspname <> 'pg_catalog'
		WHERE EXISTS (SELECT FROM pg_proc b WHERE b.proname = p.proname AND b.pronamespace = 'pg_catalog'::regnamespace)
		AND NOT EXISTS (SELECT FROM pg_depend e WHERE e.classid = 'pg_proc'::regclass AND e.objid = p.oid AND e.deptype = 'e')
	UNION ALL SELECT 'function or operator with the name of a built-in one', '', o.oid::regoperator::text, ''
		FROM pg_operator o JOIN pg_namespace n ON n.oid = o.oprnamespace AND n.nspname = ANY (current_schemas(false)) AND n.nspname <> 'pg_catalog'
		WHERE EXISTS (SELECT FROM pg_operator b WHERE b.oprname = o.oprname AND b.oprnamespace = 'pg_catalog'::regnamespace)
		AND NOT EXISTS (SELECT FROM pg_depend e WHERE e.classid = 'pg_operator'::regclass AND e.objid = o.oid AND e.deptype = 'e')
	ORDER BY 1, 2, 3, 4`

func (d *postgres) name() string { return "postgres" }

func (d *postgres) schemaOf(ctx context.Context, in statements, tables []string) ([]schemaObject, error) {
	return scanSchema(ctx, in, postgresSchema, tables)
}
