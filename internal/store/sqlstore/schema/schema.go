// Package schema has the list of schema objects that the migrations create, for each
// kind of database.
package schema

import "embed"

// Lists are the files with the schema objects, one for each kind of database. TestSchemaLists writes them.
//
//go:embed *.txt
var Lists embed.FS
