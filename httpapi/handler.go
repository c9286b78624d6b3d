package httpapi

import (
	"context"
	"crypto/x509"
	"errors"
	"reflect"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/clients/go/wire"
	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/operations"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// nothing is the request of a route without parameters.
type nothing = routes.Nothing

// handler executes the requests of a route. It has the request and response types of the route.
type handler struct {
	request, response reflect.Type
	run               func(*exchange) (any, error)
}

// call is the information about a request that a handler gets in addition to its input. The caller is an argument and
// not a context value, so that no layer can lose it.
type call struct {
	by keyserver.Caller
	session.From
	proof session.Proof
	// authorization contains the values of the header Authorization. Only a login from an existing session uses them;
	// every other handler uses by.
	authorization []string
	certificates  []*x509.Certificate // of the TLS connection; the first is the client's certificate
}

// handle returns a handler for a function that needs the API, or more of the request than its caller.
func handle[In, Out any](work func(*API, context.Context, call, In) (Out, error)) handler {
	return decoded(reflect.TypeFor[In](), reflect.TypeFor[Out](), func(x *exchange, in any) (any, error) {
		request := in.(*In) //nolint:errcheck // decoded creates this type
		out, err := work(x.api, x.ctx, x.call, *request)
		return &out, err
	})
}

// operate returns the handler of a route that only calls an operation of the key server.
func operate(o operations.Handler) handler {
	return decoded(o.Request, o.Response, func(x *exchange, in any) (any, error) {
		return o.Run(x.ctx, x.api.Operations, x.call.by, in)
	})
}

// decoded returns a handler that decodes a request, takes a place for it and calls work. work always returns a pointer
// to the response. API.serve encodes the response.
func decoded(request, response reflect.Type, work func(x *exchange, in any) (any, error)) handler {
	table := wire.Of(request)
	return handler{request, response, func(x *exchange) (any, error) {
		in := reflect.New(request).Interface()
		if err := x.decode(table, in); err != nil {
			return nil, err
		}
		if err := x.begin(in); err != nil {
			return nil, err
		}
		return x.judge(work(x, in))
	}}
}

// stream returns a handler whose function work reads the body itself. The type In only documents the body; query
// parameters are refused.
func stream[In, Out any](work func(*exchange) (Out, error)) handler {
	h := handler{request: reflect.TypeFor[In](), response: reflect.TypeFor[Out]()}
	h.run = func(x *exchange) (any, error) {
		if err := wire.Of(reflect.TypeFor[nothing]()).DecodeQuery(x.r.URL.RawQuery, &nothing{}); err != nil {
			return nil, routes.Refused(err)
		}
		if err := x.enter(); err != nil {
			return nil, err
		}
		out, err := work(x)
		if err != nil {
			return nil, err
		}
		return &out, nil
	}
	return h
}

// begin runs after a request was decoded and before it is executed. A request that is stored in an approval takes no
// place, because the outer request, which requests or executes the approval, already has one.
func (x *exchange) begin(in any) error {
	if x.stored != nil {
		return x.stored.read(in)
	}
	return x.enter()
}

// judge returns the response together with the error if the route reports this fault in its response
// (Route.VerdictCodes). Otherwise it returns only the error.
func (x *exchange) judge(out any, err error) (any, error) {
	if err == nil {
		return out, nil
	}
	var f *fault.Error
	verdict, ok := out.(interface{ Judge(code, detail string) })
	if !ok || !errors.As(err, &f) || !slices.Contains(x.route.VerdictCodes, f.Code) {
		return nil, err
	}
	verdict.Judge(string(f.Code), f.Detail)
	return out, err
}
