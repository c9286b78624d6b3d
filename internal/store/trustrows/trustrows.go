package trustrows

import "github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

// Reads are the queries of this package.
type Reads struct{ sql sqldb.Statements }

// NewReads returns Reads whose queries run on in.
func NewReads(in sqldb.Statements) Reads { return Reads{in} }

// Writes are the statements of this package that write, within a transaction.
type Writes struct {
	sql     sqldb.Statements
	reads   Reads
	changes *sqldb.Recorder
}

// NewWrites returns Writes whose statements run on in and record their changes in changes.
func NewWrites(in sqldb.Statements, changes *sqldb.Recorder) Writes {
	return Writes{in, NewReads(in), changes}
}
