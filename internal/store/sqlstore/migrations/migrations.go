// Package migrations has the migrations of the database, in one directory for each kind of database.
package migrations

import "embed"

// Files are the migrations in the format of goose.
//
//go:embed postgres sqlite
var Files embed.FS
