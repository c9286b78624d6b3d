// Package migrations holds the migrations of the database, a directory for each kind.
package migrations

import "embed"

// Files are the migrations as goose reads them.
//
//go:embed postgres sqlite
var Files embed.FS
