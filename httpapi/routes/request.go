package routes

import (
	"reflect"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/wire"
)

// Spell reads a request of the route as the service would, and refuses what that
// refuses, for whoever makes requests out of text: segment answers what stands in the
// place of a name in the path, query is as it stands behind the question mark. The
// body of a streamed route is left alone. The target is path and query, spelled.
func (r Route) Spell(segment func(name string) string, query string, body []byte) (target string, in any, err error) {
	table := wire.Of(r.Request)
	in = reflect.New(r.Request).Interface()
	if err := table.DecodePath(segment, in); err != nil {
		return "", nil, err
	}
	if err := table.DecodeQuery(query, in); err != nil {
		return "", nil, err
	}
	if !r.Streamed() && len(table.Body)+len(body) > 0 {
		if err := table.DecodeBody(body, in); err != nil {
			return "", nil, err
		}
	}
	target, err = table.EncodePath(r.Path, reflect.ValueOf(in).Elem().Interface())
	if query != "" {
		target += "?" + query
	}
	return target, in, err
}

// Secret reports whether a member of the body has a value that nobody but the caller
// and the key server may see.
func (r Route) Secret(member string) bool {
	return slices.ContainsFunc(wire.Of(r.Request).Body, func(f wire.Field) bool { return f.Name == member && f.Secret })
}
