// Package schema has the schema that the migrations make, as a list for each database.
package schema

import "embed"

// Lists are the lists. TestSchemaLists writes them.
//
//go:embed *.txt
var Lists embed.FS
