package sqlstore

import "github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

// Errors of reads and writes.
var (
	// ErrNotFound says that no such object exists, or that one which a write
	// refers to does not.
	ErrNotFound = sqldb.ErrNotFound
	// ErrDuplicate says that an object with that identity exists.
	ErrDuplicate = sqldb.ErrDuplicate
)

// Reasons for which a database is not opened. Each is wrapped in one sentence for people.
var (
	ErrForeign      = sqldb.ErrForeign
	ErrNewerVersion = sqldb.ErrNewerVersion
	ErrOlderVersion = sqldb.ErrOlderVersion
	ErrInUse        = sqldb.ErrInUse
	ErrUnusable     = sqldb.ErrUnusable
)
