package sqlstore

import (
	"context"
	"strings"
)

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
