package httpapi

import (
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/wire"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Every query parameter of every route is decoded as it is encoded.
func TestEveryQueryIsReadAsItIsSpelt(t *testing.T) {
	unexported := cmp.Exporter(func(reflect.Type) bool { return true })
	seen := 0
	for _, r := range routes.All() {
		table := wire.Of(r.Request)
		for _, f := range table.Query {
			seen++
			// Send one parameter at a time, because some parameters exclude each other. Required parameters are always
			// sent.
			values := url.Values{f.Name: {example(&f.Value)}}
			for _, other := range table.Query {
				if other.Required {
					values.Set(other.Name, example(&other.Value))
				}
			}
			sent, read := reflect.New(table.Type), reflect.New(table.Type)
			if err := table.DecodeQuery(values.Encode(), sent.Interface()); err != nil {
				t.Fatalf("%s %s: %v", r.Method, r.Path, err)
			}
			query := table.EncodeQuery(sent.Elem().Interface())
			if err := table.DecodeQuery(strings.TrimPrefix(query, "?"), read.Interface()); err != nil {
				t.Errorf("%s %s: %s: %v", r.Method, r.Path, query, err)
			}
			if diff := cmp.Diff(sent.Elem().Interface(), read.Elem().Interface(), unexported); diff != "" || query != "?"+values.Encode() {
				t.Errorf("%s %s: %s is spelt %s and read as another query:\n%s", r.Method, r.Path, values.Encode(), query, diff)
			}
		}
	}
	if seen == 0 {
		t.Error("no route has a query")
	}
}

// A filter with the value zero would select all objects, so it is refused. Only the cursor of a page may be zero.
func TestNoFilterIsZero(t *testing.T) {
	zeros := map[reflect.Type]string{
		reflect.TypeFor[schema.HexID](): "0000000000000000", reflect.TypeFor[schema.DecimalID](): "0", reflect.TypeFor[schema.SystemID](): "0",
		reflect.TypeFor[schema.Base64ID](): "AAAAAAAAAAA=", reflect.TypeFor[time.Time](): "0001-01-01T00:00:00Z",
	}
	seen := 0
	for _, r := range routes.All() {
		table := wire.Of(r.Request)
		for _, f := range table.Query {
			value, values := f.Value, url.Values{}
			if value.Kind == wire.Array {
				values.Add(f.Name, example(value.Elem))
				value = *value.Elem
			}
			zero, ok := zeros[value.Type]
			if !ok {
				continue
			}
			seen++
			values.Add(f.Name, zero)
			err := table.DecodeQuery(values.Encode(), reflect.New(table.Type).Interface())
			if refused := fault.CodeOf(routes.Refused(err)) == fault.BadRequest && strings.Contains(err.Error(), f.Name); refused == (f.Name == "after") {
				t.Errorf("%s %s?%s: got %v", r.Method, r.Path, values.Encode(), err)
			}
		}
	}
	if seen == 0 {
		t.Error("no route has a filter that can be zero")
	}
}

func example(v *wire.Value) string {
	switch {
	case v.Kind == wire.Array:
		return example(v.Elem)
	case v.Kind == wire.Integer && v.Scalar == nil && len(v.Enum) == 0:
		return "1" // not the minimum: it may be zero, and zero is omitted
	}
	return strings.Trim(v.Example(), `"`)
}

// Every path of every route is decoded as it is encoded, and has a value for each field.
func TestEveryPathIsReadAsItIsSpelt(t *testing.T) {
	seen := 0
	for _, r := range routes.All() {
		table := wire.Of(r.Request)
		texts, want := map[string]string{}, r.Path
		for _, f := range table.Path {
			seen++
			texts[f.Name] = example(&f.Value)
			want = strings.Replace(want, "{"+f.Name+"}", texts[f.Name], 1)
		}
		in := reflect.New(table.Type)
		if err := table.DecodePath(func(name string) string { return texts[name] }, in.Interface()); err != nil {
			t.Fatalf("%s %s: %v", r.Method, r.Path, err)
		}
		path, err := table.EncodePath(r.Path, in.Elem().Interface())
		if err != nil || path != want || strings.ContainsAny(path, "{}") {
			t.Errorf("%s %s is spelt %q, %v; want %q", r.Method, r.Path, path, err, want)
		}
	}
	if seen == 0 {
		t.Error("no route has a path with fields")
	}
}
