package routes

import (
	"errors"
	"reflect"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/clients/go/wire"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Refused returns the fault for a refused field. It returns other errors unchanged.
func Refused(err error) error {
	if err == nil {
		return nil // without an allocation for f
	}
	var f *wire.FieldError
	if errors.As(err, &f) {
		return fault.Field(f.Field, f.Problem)
	}
	return err
}

// Decode decodes a request of the route, and rejects an invalid request as the key server would. It is for callers that
// create requests from text. segment returns the value of a name in the path, and query is the text after the question
// mark. Decode ignores the body of a streamed route. target is the encoded path and query.
func (r Route) Decode(segment func(name string) string, query string, body []byte) (target string, in any, err error) {
	if in, err = r.decode(segment, query, body); err != nil {
		return "", nil, err
	}
	target, err = wire.Of(r.Request).EncodePath(r.Path, reflect.ValueOf(in).Elem().Interface())
	if query != "" {
		target += "?" + query
	}
	return target, in, Refused(err)
}

// decode is Decode without the target.
func (r Route) decode(segment func(name string) string, query string, body []byte) (any, error) {
	table, in := wire.Of(r.Request), reflect.New(r.Request).Interface()
	err := table.DecodePath(segment, in)
	if err == nil {
		err = table.DecodeQuery(query, in)
	}
	if err == nil && !r.Streamed() {
		err = table.DecodeBody(body, in)
	}
	return in, Refused(err)
}

// Secret reports whether a member of the body has a value that only the caller and the
// key server may see.
func (r Route) Secret(member string) bool {
	return slices.ContainsFunc(wire.Of(r.Request).Body, func(f wire.Field) bool { return f.Name == member && f.Secret })
}
