package sqlstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/datadir"
)

// What reads and writes answer.
var (
	// ErrNotFound says that no such object exists, or that one which a write
	// refers to does not.
	ErrNotFound = errors.New("not found")
	// ErrDuplicate says that an object with that identity exists.
	ErrDuplicate = errors.New("already exists")
)

// Why a database is not opened. Each is wrapped in one sentence for people.
var (
	ErrForeign      = datadir.ErrForeign
	ErrNewerVersion = errors.New("database of a newer version")
	ErrOlderVersion = errors.New("database of an older version")
	ErrInUse        = datadir.ErrInUse
	ErrUnusable     = datadir.ErrUnusable
)

func refuse(kind error, format string, args ...any) error {
	return datadir.Refuse(kind, format, args...)
}

// errorClass is what a driver's error means to callers.
type errorClass int

const (
	classOther errorClass = iota
	classDuplicate
	classReference // a foreign key names nothing
	classUnavailable
)

// retryUnavailable is when a caller may try a database again that did not answer.
const retryUnavailable = time.Second

// translate turns an error of database/sql or a driver into one of this
// package. Only the text of a driver's error survives: its type stays here.
func translate(d dialect, err error) error {
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
	switch d.classify(err) {
	case classDuplicate:
		return ErrDuplicate
	case classReference:
		return ErrNotFound
	case classUnavailable:
		if d.full(err) {
			return fault.Temporary(fault.StoreUnavailable, fault.ScopeProcess, retryUnavailable,
				"the database has no room: its volume is full; make room on it, and try again").Because(opaque(err))
		}
		return unavailable(err)
	default:
		return opaque(err)
	}
}

func unavailable(err error) error {
	return fault.Temporary(fault.StoreUnavailable, fault.ScopeProcess, retryUnavailable,
		"the database does not answer; try again").Because(opaque(err))
}

func opaque(err error) error { return errors.New("database: " + driverText(err)) }

// driverText returns the text of a driver's error as one line of valid UTF-8. The drivers indent
// by tabs, and a server may report in an encoding of its own.
func driverText(err error) string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(err.Error(), "?")), " ")
}

// errLockHeld says that the lock that orders what replicas do was not to be had for a while.
var errLockHeld = errors.New("another process holds the lock of the database")
