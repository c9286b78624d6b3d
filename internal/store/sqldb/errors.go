package sqldb

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/datadir"
)

// Errors of reads and writes.
var (
	// ErrNotFound means that the object, or an object to which a write refers, does not exist.
	ErrNotFound = errors.New("not found")
	// ErrDuplicate means that an object with that identity exists.
	ErrDuplicate = errors.New("already exists")
)

// Reasons why a database is not opened. Refuse adds the message for users.
var (
	ErrForeign      = datadir.ErrForeign
	ErrNewerVersion = errors.New("database of a newer version")
	ErrOlderVersion = errors.New("database of an older version")
	ErrInUse        = datadir.ErrInUse
	ErrUnusable     = datadir.ErrUnusable
)

// Refuse returns an error that wraps kind. Its text is the formatted message for users.
func Refuse(kind error, format string, args ...any) error {
	return datadir.Refuse(kind, format, args...)
}

// ErrorClass is the meaning of a driver's error for callers.
type ErrorClass int

// Classes of errors of a database.
const (
	ClassOther ErrorClass = iota
	ClassDuplicate
	ClassReference // a foreign key refers to a missing row
	ClassUnavailable
)

// RetryUnavailable is the time after which a caller may retry if the database did not respond.
const RetryUnavailable = time.Second

// Translate converts an error of database/sql or a driver into an error of this package. The result keeps the text of a
// driver's error, but not its type.
func Translate(d Dialect, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return context.DeadlineExceeded
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrDuplicate), fault.As(err) != nil:
		return err
	}
	switch d.Classify(err) {
	case ClassDuplicate:
		return ErrDuplicate
	case ClassReference:
		return ErrNotFound
	case ClassUnavailable:
		if d.Full(err) {
			return fault.Temporary(fault.StoreUnavailable, fault.ScopeProcess, RetryUnavailable,
				"the volume of the database is full; free some space on it, and try again").Because(opaque(err))
		}
		return Unavailable(err)
	default:
		return opaque(err)
	}
}

// Unavailable returns the fault of a database that does not respond. It keeps the text of err.
func Unavailable(err error) error {
	return fault.Temporary(fault.StoreUnavailable, fault.ScopeProcess, RetryUnavailable,
		"the database does not respond; try again").Because(opaque(err))
}

func opaque(err error) error { return errors.New("database: " + DriverText(err)) }

// DriverText returns the text of a driver's error as one line of valid UTF-8. The drivers indent
// with tabs, and a server may use another encoding.
func DriverText(err error) string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(err.Error(), "?")), " ")
}

// ErrLockHeld means that this process waited too long for a lock of the database that another process holds.
var ErrLockHeld = errors.New("another process holds the lock of the database")
