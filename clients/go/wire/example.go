package wire

import (
	"strconv"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/canonical"
)

// Example returns the JSON text of a body that the table accepts. It has all fields that
// do not exclude each other. The OpenAPI document shows it, and tests make it invalid
// field by field.
func (t *Table) Example() string {
	var members []string
	for _, f := range t.Body {
		if !f.Exclusive {
			members = append(members, strconv.Quote(f.Name)+":"+f.Value.Example())
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

// exampleBytes is the number of bytes in the example of a byte field.
const exampleBytes = 8

// Example returns a JSON text that the value accepts.
func (v *Value) Example() string {
	switch {
	case len(v.Enum) > 0 && v.Kind == Text:
		return strconv.Quote(v.Enum[0])
	case len(v.Enum) > 0:
		return v.Enum[0]
	case v.Scalar != nil && v.Scalar.Binary && v.Min != nil && *v.Min > exampleBytes:
		return strconv.Quote(canonical.Encode(make([]byte, *v.Min)))
	case v.Scalar != nil:
		return v.Scalar.Example
	}
	switch v.Kind {
	case Integer:
		if v.Min != nil {
			return strconv.FormatInt(*v.Min, 10)
		}
		return "1"
	case Boolean:
		return "true"
	case Time:
		return `"2026-01-31T08:00:00Z"`
	case Array:
		return "[" + v.Elem.Example() + "]"
	case Map:
		return `{"name":` + v.Elem.Example() + `}`
	case Object:
		return v.Members.Example()
	default:
		return `"some text"`
	}
}
