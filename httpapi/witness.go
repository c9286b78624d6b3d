package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Witness cosigns checkpoints of logs (C2SP tlog-witness).
type Witness interface {
	// Answer returns the lines of a cosignature for the body of a request.
	Answer(ctx context.Context, body []byte) ([]byte, error)
}

// plainText is a response that is not JSON.
type plainText struct {
	status    int
	mediaType string
	body      []byte
}

// addCheckpoint needs no session: the signature of the log authenticates the request.
func addCheckpoint(x *exchange) (any, error) {
	body, err := io.ReadAll(x.body())
	if err != nil {
		return nil, err
	}
	x.bodyArrived()
	if err := x.enter(); err != nil {
		return nil, err
	}
	lines, err := x.api.Witness.Answer(x.ctx, body)
	var stale keyserver.StaleCheckpointError
	if errors.As(err, &stale) {
		return plainText{http.StatusConflict, "text/x.tlog.size", append(strconv.AppendInt(nil, stale.Size, 10), '\n')}, nil
	}
	if err != nil {
		return nil, err
	}
	return plainText{http.StatusOK, "text/plain; charset=utf-8", lines}, nil
}
