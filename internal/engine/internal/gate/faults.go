package gate

import (
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Invalid returns the fault of an invalid argument.
func Invalid(format string, args ...any) error {
	return fault.New(fault.InvalidArgument, format, args...).Audited(fault.ReasonInvalidArgument)
}

// NotFound turns the store's "no such row" into a fault; every other error
// passes through.
func NotFound(err error, code fault.Code, format string, args ...any) error {
	if errors.Is(err, sqlstore.ErrNotFound) {
		return fault.New(code, format, args...).Audited(fault.ReasonObjectNotFound)
	}
	return err
}

// UnlessNotFound returns an error of the store, or nil if it says that there is no such row.
func UnlessNotFound(err error) error {
	if errors.Is(err, sqlstore.ErrNotFound) {
		return nil
	}
	return err
}
