package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"reflect"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/wire"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

const (
	// takeTime is how long a client may take to read one piece of a streamed response.
	takeTime = 30 * time.Second
)

func createBackup(a *API, ctx context.Context, c call, in schema.BackupRequest, to io.Writer) error {
	return a.Operations.CreateBackup(ctx, c.by, string(in.Recipient), to)
}

// download returns the handler of a route whose response is sent while it is produced.
func download[In any](work func(*API, context.Context, call, In, io.Writer) error) handler {
	h := handler{request: reflect.TypeFor[In](), response: reflect.TypeFor[schema.Octets]()}
	table := wire.Of(h.request)
	h.run = func(x *exchange) (any, error) {
		in := new(In)
		if err := x.decode(table, in); err != nil {
			return nil, err
		}
		if err := x.enter(); err != nil {
			return nil, err
		}
		to := &pieces{x: x}
		if err := work(x.api, x.ctx, x.call, *in, to); err != nil {
			if !x.answered {
				return nil, err
			}
			// The status is already sent. Aborting the connection shows that the response
			// is incomplete.
			f := x.faultOf(err)
			x.code = f.Code
			x.report(f, routes.ResponseTo(f.Code), err)
			panic(http.ErrAbortHandler)
		}
		return to, nil
	}
	return h
}

// pieces writes a streamed response. The status is sent with the first piece.
type pieces struct{ x *exchange }

// Write implements io.Writer. It fails if the client reads nothing for takeTime.
func (p *pieces) Write(b []byte) (int, error) {
	if !p.x.answered {
		p.x.answered = true
		p.x.w.Header()["Content-Type"] = []string{schema.Octets(nil).MediaType()}
		p.x.w.WriteHeader(http.StatusOK)
	}
	_ = http.NewResponseController(p.x.w).SetWriteDeadline(in(takeTime))
	n, err := p.x.w.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fault.New(fault.RequestTimeout, "the client read nothing of the response for %s, so the response was cut off", takeTime).Because(err)
	}
	return n, err
}
