package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"reflect"
	"time"

	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/wire"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

const (
	// takeTime is how long whoever is given an answer piece by piece may take for one.
	takeTime = 30 * time.Second
)

func makeBackup(a *API, ctx context.Context, c call, in schema.BackupRequest, to io.Writer) error {
	return a.Operations.MakeBackup(ctx, c.by, string(in.Recipient), to)
}

// download handles a route whose answer is sent while it is made.
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
			// The status is gone already. What is cut off does not look whole.
			f := x.faultOf(err)
			x.code = f.Code
			x.report(f, routes.AnswerTo(f.Code), err)
			panic(http.ErrAbortHandler)
		}
		return to, nil
	}
	return h
}

// pieces is an answer that is sent as it comes. The status goes with the first of it.
type pieces struct{ x *exchange }

// Write implements io.Writer. A client that takes nothing does not hold the work up.
func (p *pieces) Write(b []byte) (int, error) {
	if !p.x.answered {
		p.x.answered = true
		p.x.w.Header()["Content-Type"] = []string{schema.Octets(nil).MediaType()}
		p.x.w.WriteHeader(http.StatusOK)
	}
	_ = http.NewResponseController(p.x.w).SetWriteDeadline(in(takeTime))
	n, err := p.x.w.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fault.New(fault.RequestTimeout, "the client took nothing of the answer for %s, and it was cut off", takeTime).Because(err)
	}
	return n, err
}
