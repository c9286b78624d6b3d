package sqlite

import (
	"context"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"
)

// sqliteSchema lists all tables and their indexes, triggers and foreign keys. It omits names that
// begin with sqlite_, because SQLite reserves them. But it lists every trigger: SQLite creates none, and
// a process that changes the file directly can use any name.
const sqliteSchema = `SELECT CASE type WHEN 'view' THEN 'table' ELSE type END, lower(tbl_name), CASE WHEN type IN ('table', 'view') THEN '' ELSE name END, coalesce(sql, '')
		FROM sqlite_schema WHERE type = 'trigger' OR name NOT LIKE 'sqlite\_%' ESCAPE '\'
	UNION ALL SELECT 'foreign key', lower(k."table"), 'of ' || m.name, '' FROM sqlite_schema m, pragma_foreign_key_list(m.name) k WHERE m.type = 'table'
	ORDER BY 1, 2, 3, 4`

// Name implements sqldb.Dialect.
func (d *Database) Name() string { return "sqlite" }

// SchemaOf implements sqldb.Dialect.
func (d *Database) SchemaOf(ctx context.Context, in sqldb.Statements, tables []string) ([]sqldb.SchemaObject, error) {
	all, err := sqldb.ScanSchema(ctx, in, sqliteSchema)
	if err != nil {
		return nil, err
	}
	ours := map[string]bool{}
	for _, t := range tables {
		ours[t] = true
	}
	var list []sqldb.SchemaObject
	seen := map[sqldb.SchemaObject]bool{}
	for _, o := range all {
		// Omit the foreign keys of our own tables, because the definition of a table contains them.
		if !seen[o] && (len(tables) == 0 || ours[o.Table]) && (o.Kind != sqldb.KindReference || !ours[strings.ToLower(strings.TrimPrefix(o.Name, "of "))] && len(tables) > 0) {
			list = append(list, o)
		}
		seen[o] = true
	}
	return list, nil
}
