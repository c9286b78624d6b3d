package kmsplugin

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/brief"
)

// maxSentence limits the text of an error for a caller, in bytes.
const maxSentence = 1 << 10

// refusal is an error that the plugin itself found.
type refusal struct {
	code     codes.Code
	sentence string
}

func (r *refusal) Error() string { return r.sentence }

func refusef(code codes.Code, format string, args ...any) error {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

// coded converts an error to the gRPC status for a caller. It is the only such conversion.
func coded(err error) error {
	if err == nil {
		return nil
	}
	return status.Error(codeOf(err), brief.Clip(err.Error(), maxSentence))
}

func codeOf(err error) codes.Code {
	var own *refusal
	var said *client.Error
	switch {
	case errors.As(err, &own):
		return own.code
	case errors.As(err, &said):
		return codeOfAnswer(said)
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	default:
		return codes.Unavailable // an error of the network, or of a file that may exist at the next call
	}
}

// codeOfAnswer returns the gRPC code for an error of the key server. The code shows who must act: only the caller, with
// a retry (Unavailable), the owner of ACLs and roles (PermissionDenied), the owner of the token (Unauthenticated), or
// the owner of the keys (FailedPrecondition, NotFound).
func codeOfAnswer(e *client.Error) codes.Code {
	switch {
	case e.Retryable:
		return codes.Unavailable
	case e.Code == "KEY_DISABLED":
		return codes.FailedPrecondition
	}
	switch e.Status {
	case http.StatusBadRequest:
		return codes.InvalidArgument
	case http.StatusUnauthorized:
		return codes.Unauthenticated
	case http.StatusForbidden:
		return codes.PermissionDenied
	case http.StatusNotFound:
		return codes.NotFound
	case http.StatusConflict:
		return codes.FailedPrecondition
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return codes.Unavailable
	default:
		return codes.Internal
	}
}
