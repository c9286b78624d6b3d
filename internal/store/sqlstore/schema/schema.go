// Package schema has, for each kind of database, the list of the schema that the
// migrations make.
package schema

import "embed"

// Lists are the lists. TestSchemaLists writes them.
//
//go:embed *.txt
var Lists embed.FS
