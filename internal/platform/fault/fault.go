// Package fault defines the only error type that crosses layers. A fault has a code and never an HTTP status. Only
// package httpapi maps codes to statuses. For an error that is not a fault, httpapi returns a generic failure.
package fault

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Scope tells whether a session or the process reached its limit.
type Scope string

// The scopes of a temporary refusal (status 503).
const (
	ScopeSession Scope = "session" // the calling session reached a limit
	ScopeProcess Scope = "process" // the process reached a limit
)

// Error is a failure with a code. Detail is for users and may be sent to the caller, so it never contains a secret. The
// wrapped cause is only for the log.
type Error struct {
	Code   Code
	Detail string
	// Reason is the reason in the audit log; empty if the failure is not audited.
	Reason Reason
	// Scope, Retryable and RetryAfter are set only for temporary refusals.
	Scope      Scope
	Retryable  bool
	RetryAfter time.Duration

	cause error
}

// New returns a fault. The detail names the field or object, the problem and the remedy.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// Field returns a BadRequest fault about one field of a request. problem follows the name of the field, for example
// "must not be empty".
func Field(name, problem string) *Error { return New(BadRequest, "%s: %s", name, problem) }

// Because returns a copy of the fault with a cause. The cause is only logged and never sent to a caller.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

// Audited returns a copy of the fault with the audit reason.
func (e *Error) Audited(reason Reason) *Error {
	c := *e
	c.Reason = reason
	return &c
}

// Temporary returns a fault that tells the caller to retry after the given time.
func Temporary(code Code, scope Scope, retryAfter time.Duration, format string, args ...any) *Error {
	e := New(code, format, args...)
	e.Scope, e.Retryable, e.RetryAfter = scope, true, retryAfter
	return e
}

// Error implements error. It returns code and detail, but not the cause, because callers may see the text.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Detail }

func (e *Error) Unwrap() error { return e.cause }

// Is compares faults by code. So errors.Is(err, fault.New(code, "")) works, and packages need no sentinel errors.
func (e *Error) Is(target error) bool {
	var t *Error
	return errors.As(target, &t) && t.Code == e.Code
}

// Explain returns the text of an error and the causes of the faults in its chain. The result is for logs and for an
// administrator's terminal, never for a caller of the API.
func Explain(err error) string {
	text := err.Error()
	for _, cause := range causes(err) {
		if !strings.Contains(text, cause) {
			text += ": " + cause
		}
	}
	return text
}

func causes(err error) (all []string) {
	switch e := err.(type) { //nolint:errorlint // each link of the chain is looked at
	case *Error:
		if e.cause != nil {
			all = append(all, Explain(e.cause))
		}
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			all = append(all, causes(one)...)
		}
	case interface{ Unwrap() error }:
		if one := e.Unwrap(); one != nil {
			all = causes(one)
		}
	}
	return all
}

// CodeOf returns the code of the first fault in err's chain. For any other error it returns OpFailed, and for nil "".
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var f *Error
	if errors.As(err, &f) {
		return f.Code
	}
	return OpFailed
}

// As returns the first fault in err's chain, or nil.
func As(err error) *Error {
	var f *Error
	if errors.As(err, &f) {
		return f
	}
	return nil
}

// ReasonOf returns the audit reason of the first fault in err's chain. It returns ReasonFailed for a fault without a
// reason and for any other error.
func ReasonOf(err error) Reason {
	if f := As(err); f != nil && f.Reason != "" {
		return f.Reason
	}
	return ReasonFailed
}
