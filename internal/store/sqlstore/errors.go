package sqlstore

import "github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

// Errors of reads and writes.
var (
	// ErrNotFound means that the object, or an object to which a write refers, does not
	// exist.
	ErrNotFound = sqldb.ErrNotFound
	// ErrDuplicate means that an object with that identity exists.
	ErrDuplicate = sqldb.ErrDuplicate
)

// Reasons why a database is not opened. The errors of Open and other functions wrap them.
var (
	ErrForeign      = sqldb.ErrForeign
	ErrNewerVersion = sqldb.ErrNewerVersion
	ErrOlderVersion = sqldb.ErrOlderVersion
	ErrInUse        = sqldb.ErrInUse
	ErrUnusable     = sqldb.ErrUnusable
)
