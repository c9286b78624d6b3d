package client

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Error is a refusal or failure that the service answered, or that the client
// found before sending (Status 0). Where a verified write disagreed, or where a
// success lacks its evidence (Status 200, code NOT_VERIFIED), the typed answer is
// returned together with the error.
type Error struct {
	Status    int
	Code      string // what to match on
	Detail    string // for people
	Retryable bool
	Reauth    bool
	Scope     string
	// RetryAfter is how long the service asked to wait, 0 where it did not say.
	RetryAfter time.Duration
	// RequestID finds the cause in the service's log.
	RequestID string
	// unsupported: the service has no such path or method.
	unsupported bool
}

// Error says code and detail, and the request id where there is one.
func (e *Error) Error() string {
	code := e.Code
	if code == "" {
		code = fmt.Sprintf("HTTP %d", e.Status)
	}
	if e.RequestID == "" {
		return code + ": " + e.Detail
	}
	return code + ": " + e.Detail + " (request " + e.RequestID + ")"
}

// NetworkError is a call that got no answer.
type NetworkError struct {
	// Sent is false where nothing of the request can have reached the service.
	// Where it is true, a write may have taken effect.
	Sent bool
	Err  error
}

// Error says what the transport said.
func (e *NetworkError) Error() string { return "no answer from the service: " + e.Err.Error() }

// Unwrap returns the transport's error.
func (e *NetworkError) Unwrap() error { return e.Err }

// LoginError is why there is no session to make a call with: what opening one failed
// with. Nothing of the call itself was sent.
type LoginError struct{ Err error }

// Error says what the login failed with.
func (e *LoginError) Error() string { return e.Err.Error() }

// Unwrap returns what the login failed with.
func (e *LoginError) Unwrap() error { return e.Err }

// CodeOf returns the code that the service answered, or "" for any other error.
func CodeOf(err error) string {
	if e := asError(err); e != nil {
		return e.Code
	}
	return ""
}

// IsCode reports whether the service answered that code.
func IsCode(err error, code string) bool { return err != nil && CodeOf(err) == code }

// IsUnsupported reports whether the service has no such call at all, as
// opposed to no such object.
func IsUnsupported(err error) bool {
	e := asError(err)
	return e != nil && e.unsupported
}

// IsUnavailable reports whether no answer could be had now: the network failed
// or the service answered 502, 503 or 504. A write may have taken effect.
func IsUnavailable(err error) bool {
	var n *NetworkError
	if errors.As(err, &n) {
		return true
	}
	e := asError(err)
	if e == nil {
		return false
	}
	switch e.Status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	default:
		return false
	}
}

func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}

// refuse is a refusal before sending, in the service's own words.
func refuse(field string, err error) *Error {
	return &Error{Code: "BAD_REQUEST", Detail: field + ": " + err.Error()}
}
