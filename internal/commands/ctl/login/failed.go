package login

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/cmdline"
)

// Failed adds an exit code to the error of a call, and a remedy if there is one.
func (h *Context) Failed(err error) error {
	var have *cmdline.Failure
	if err == nil || errors.As(err, &have) {
		return err
	}
	var network *client.NetworkError
	if errors.As(err, &network) {
		return &cmdline.Failure{Code: cmdline.ExitUnavailable, Err: h.unreachable(err)}
	}
	var e *client.Error
	if !errors.As(err, &e) {
		return &cmdline.Failure{Code: cmdline.ExitFailed, Err: err}
	}
	switch {
	case e.Status == 0:
		return &cmdline.Failure{Code: cmdline.ExitUsage, Err: errors.New(e.Detail)}
	case e.Code == "NOT_VERIFIED", e.Status == http.StatusConflict, e.Code == "READBACK_FAILED":
		return &cmdline.Failure{Code: cmdline.ExitNotVerified, Err: err}
	case client.IsUnavailable(err):
		return &cmdline.Failure{Code: cmdline.ExitUnavailable, Err: err}
	case e.Status == http.StatusNotFound:
		return &cmdline.Failure{Code: cmdline.ExitNotFound, Err: err}
	case e.Reauth:
		return &cmdline.Failure{Code: cmdline.ExitRefused, Err: fmt.Errorf("%w; log in again: keyserverctl login", err)}
	case e.Code == "APPROVAL_REQUIRED":
		return &cmdline.Failure{Code: cmdline.ExitRefused, Err: fmt.Errorf("%w; repeat the command with --ask 'WHY' to request an approval", err)}
	case e.Code == "PROOF_URI_MISMATCH":
		return &cmdline.Failure{Code: cmdline.ExitRefused, Err: fmt.Errorf("%w; the key server's own URL differs from --server; log in again and give that URL as --external-url", err)}
	case e.Status >= http.StatusBadRequest && e.Status < http.StatusInternalServerError:
		return &cmdline.Failure{Code: cmdline.ExitRefused, Err: err}
	default:
		return &cmdline.Failure{Code: cmdline.ExitFailed, Err: err}
	}
}

// unreachable adds the flag that can solve an error about an untrusted certificate. It compares texts, because the
// error type depends on the platform.
func (h *Context) unreachable(err error) error {
	if h.place.CAFile == "" && strings.Contains(err.Error(), "certificate signed by unknown authority") {
		return fmt.Errorf("%w; give the CA certificate of the key server with --ca-file", err)
	}
	return err
}
