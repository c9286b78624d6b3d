package postgres

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"
)

// postgresSchema lists the schema objects of the tables $1, or of all tables if $1 is NULL. The key server creates and
// drops the partitions of the audit log. So for a partition, it lists only triggers, rules, policies, child tables, and
// whether another object hides the partition in the search path. It omits functions and operators of extensions.
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

// Name implements sqldb.Dialect.
func (d *Database) Name() string { return "postgres" }

// SchemaOf implements sqldb.Dialect.
func (d *Database) SchemaOf(ctx context.Context, in sqldb.Statements, tables []string) ([]sqldb.SchemaObject, error) {
	return sqldb.ScanSchema(ctx, in, postgresSchema, tables)
}
