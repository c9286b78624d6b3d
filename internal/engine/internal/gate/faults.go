package gate

import (
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Invalid returns the error for an invalid argument.
func Invalid(format string, args ...any) error {
	return fault.New(fault.InvalidArgument, format, args...).Audited(fault.ReasonInvalidArgument)
}

// NotFound replaces sqlstore.ErrNotFound by a fault with the given code and text. It returns every other error
// unchanged.
func NotFound(err error, code fault.Code, format string, args ...any) error {
	if errors.Is(err, sqlstore.ErrNotFound) {
		return fault.New(code, format, args...).Audited(fault.ReasonObjectNotFound)
	}
	return err
}

// UnlessNotFound returns nil for sqlstore.ErrNotFound, and every other error unchanged.
func UnlessNotFound(err error) error {
	if errors.Is(err, sqlstore.ErrNotFound) {
		return nil
	}
	return err
}
