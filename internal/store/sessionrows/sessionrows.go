package sessionrows

import "github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

// Reads are the queries of this package.
type Reads struct{ sql sqldb.Statements }

// NewReads returns the queries, which run on in.
func NewReads(in sqldb.Statements) Reads { return Reads{in} }

// Writes are the statements of a write transaction.
type Writes struct {
	sql     sqldb.Statements
	changes *sqldb.Recorder
}

// NewWrites returns the statements, which run on in and record their changes.
func NewWrites(in sqldb.Statements, changes *sqldb.Recorder) Writes { return Writes{in, changes} }
