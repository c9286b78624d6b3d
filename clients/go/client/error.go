package client

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Error is an error response of the key server, or an error that the client found before it sent the request (Status
// 0). If a verified write was not confirmed, or a success lacks its evidence (Status 200, code NOT_VERIFIED), the call
// also returns the typed response.
type Error struct {
	Status    int
	Code      string // for comparison
	Detail    string // for people
	Retryable bool
	Reauth    bool
	Scope     string
	// RetryAfter is how long the key server asked to wait, or 0 if it did not say.
	RetryAfter time.Duration
	// RequestID identifies the cause in the key server's log.
	RequestID string
	// unsupported: the key server has no such path or method.
	unsupported bool
}

// Error returns code and detail, and the request id if there is one.
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

// NetworkError is the error of a call that got no response.
type NetworkError struct {
	// Sent is false if nothing of the request can have reached the key server. If it is true, a write may have taken
	// effect.
	Sent bool
	Err  error
}

// Error returns the text of the transport's error.
func (e *NetworkError) Error() string { return "no response from the key server: " + e.Err.Error() }

// Unwrap returns the transport's error.
func (e *NetworkError) Unwrap() error { return e.Err }

// LoginError is the error of the login that a call needed. Nothing of the
// call itself was sent.
type LoginError struct{ Err error }

// Error returns the text of the login's error.
func (e *LoginError) Error() string { return e.Err.Error() }

// Unwrap returns the login's error.
func (e *LoginError) Unwrap() error { return e.Err }

// CodeOf returns the code of the key server's error response, or "" for any other error.
func CodeOf(err error) string {
	if e := asError(err); e != nil {
		return e.Code
	}
	return ""
}

// IsCode reports whether err has that code.
func IsCode(err error, code string) bool { return err != nil && CodeOf(err) == code }

// IsUnsupported reports whether the error means that the key server does not have the route. It returns false if only
// the object is missing.
func IsUnsupported(err error) bool {
	e := asError(err)
	return e != nil && e.unsupported
}

// IsUnavailable reports whether there was no response: the network failed, or the status
// was 502, 503 or 504. A write may have taken effect.
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

// refuse returns the error of a request that is not sent, in the form of the key server's errors.
func refuse(field string, err error) *Error {
	return &Error{Code: "BAD_REQUEST", Detail: field + ": " + err.Error()}
}
