package kmsplugin

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/brief"
)

// maxSentence bounds what a caller is told of a failure.
const maxSentence = 1 << 10

// refusal is a failure that the plugin itself has found.
type refusal struct {
	code     codes.Code
	sentence string
}

func (r *refusal) Error() string { return r.sentence }

func refusef(code codes.Code, format string, args ...any) error {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

// coded is the one place where an error becomes the status of a call.
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
		return codes.Unavailable // the network, or a file that may be there at the next call
	}
}

// codeOfAnswer says of the key server's refusal who has to do something: nobody but the
// one who repeats (Unavailable), whoever gives rights (PermissionDenied), whoever keeps
// the token (Unauthenticated), or the owner of the keys (FailedPrecondition, NotFound).
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
