package ctl

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
)

// Exit codes. Those of every command come first (docs/adr/0024).
const (
	exitFailed      = 1
	exitUsage       = 2 // the command line was wrong; nothing was sent
	exitRefused     = 3 // the service said no
	exitNotFound    = 4 // or there is no such thing
	exitNotVerified = 5 // or it does not go with what is there, or did not read back
	exitUnavailable = 6 // or no answer could be had now
)

// Failure is an error with the exit code of ctl that says what kind it is.
type Failure struct {
	Code int
	Err  error
}

// Error is one sentence.
func (f *Failure) Error() string { return f.Err.Error() }

// ProgramExit returns the exit code of the program.
func (f *Failure) ProgramExit() int { return f.Code }

// Unwrap returns what failed.
func (f *Failure) Unwrap() error { return f.Err }

func usagef(format string, args ...any) error {
	return &Failure{exitUsage, fmt.Errorf(format, args...)}
}

// failed sorts what a call ended with, and says what helps where something does.
func (p *place) failed(err error) error {
	var have *Failure
	if err == nil || errors.As(err, &have) {
		return err
	}
	var network *client.NetworkError
	if errors.As(err, &network) {
		return &Failure{exitUnavailable, p.unreachable(err)}
	}
	var e *client.Error
	if !errors.As(err, &e) {
		return &Failure{exitFailed, err}
	}
	switch {
	case e.Status == 0:
		return &Failure{exitUsage, errors.New(e.Detail)}
	case e.Code == "NOT_VERIFIED", e.Status == http.StatusConflict, e.Code == "READBACK_FAILED":
		return &Failure{exitNotVerified, err}
	case client.IsUnavailable(err):
		return &Failure{exitUnavailable, err}
	case e.Status == http.StatusNotFound:
		return &Failure{exitNotFound, err}
	case e.Reauth:
		return &Failure{exitRefused, fmt.Errorf("%w; log in again: keyserverctl login", err)}
	case e.Code == "APPROVAL_REQUIRED":
		return &Failure{exitRefused, fmt.Errorf("%w; the same command with --ask 'WHY' asks others for it", err)}
	case e.Code == "PROOF_URI_MISMATCH":
		return &Failure{exitRefused, fmt.Errorf("%w; the key server knows itself by another URL than --server: log in with that as --external-url", err)}
	case e.Status >= http.StatusBadRequest && e.Status < http.StatusInternalServerError:
		return &Failure{exitRefused, err}
	default:
		return &Failure{exitFailed, err}
	}
}

// unreachable says which flag helps against a certificate that is not trusted. The words
// are looked at because each platform has an error of its own.
func (p *place) unreachable(err error) error {
	if p.CAFile == "" && strings.Contains(err.Error(), "certificate signed by unknown authority") {
		return fmt.Errorf("%w; --ca-file names the certificates that it is to be checked against", err)
	}
	return err
}
