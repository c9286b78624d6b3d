package wire

import (
	"encoding"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// DecodeQuery decodes the raw query of a URL into the fields of out. It refuses a
// parameter that the route does not have: a misspelled filter must not select everything.
func (t *Table) DecodeQuery(raw string, out any) error {
	if raw == "" && len(t.Query) == 0 {
		return nil
	}
	var seen uint64
	for pair := range strings.SplitSeq(raw, "&") {
		if pair == "" {
			continue
		}
		name, value, r := parameter(pair)
		if r == nil {
			r = t.query(name, value, &seen, reflect.ValueOf(out).Elem())
		}
		if r != nil {
			return r.err()
		}
	}
	for i := range t.Query {
		if f := &t.Query[i]; f.Required && seen&(1<<i) == 0 {
			return &FieldError{f.Name, "is missing from the query; " + f.Value.instruction()}
		}
	}
	return nil
}

func parameter(pair string) (name, value string, r *refusal) {
	n, v, _ := strings.Cut(pair, "=")
	name, nameErr := url.QueryUnescape(n)
	value, valueErr := url.QueryUnescape(v)
	if nameErr != nil || strings.Contains(pair, ";") {
		return "", "", &refusal{"query", "is not well-formed; percent-encode names and values"}
	}
	if valueErr != nil {
		return "", "", &refusal{Quote(name), "is not well-formed; percent-encode the value"}
	}
	return name, value, nil
}

func (t *Table) query(name, value string, seen *uint64, out reflect.Value) *refusal {
	for i := range t.Query {
		f := &t.Query[i]
		if f.Name != name {
			continue
		}
		if *seen&(1<<i) != 0 && f.Value.Kind != Array {
			return &refusal{name, "is sent twice in the query; send it once"}
		}
		*seen |= 1 << i
		if value == "" && f.Blank {
			return nil
		}
		if value == "" {
			return &refusal{name, "must not be empty; leave it out, or " + f.Value.instruction()}
		}
		if r := f.Value.setOrAppend(f.target(out), value); r != nil {
			return r.in(name)
		}
		if name != cursor && f.Value.isZeroID(f.target(out)) {
			return &refusal{name, "must not be zero; no object has the id zero"}
		}
		return nil
	}
	return &refusal{Quote(name), "is not a query parameter of this route; " + t.parameters()}
}

// cursor is the name of the query parameter with the id after which a page begins. The value zero is before all ids.
const cursor = "after"

// isZeroID reports whether the value that was just read is the id zero. A filter with the id zero would count as no
// filter and select everything.
func (v *Value) isZeroID(read reflect.Value) bool {
	if v.Kind == Array {
		return v.Elem.isZeroID(read.Index(read.Len() - 1))
	}
	return v.Scalar != nil && slices.Contains(ids, v.Type) && read.IsZero()
}

var ids = []reflect.Type{
	reflect.TypeFor[schema.HexID](), reflect.TypeFor[schema.DecimalID](), reflect.TypeFor[schema.Base64ID](), reflect.TypeFor[schema.SystemID](),
}

// setOrAppend sets a value from a parameter. An array gets one element each time that the
// parameter is sent.
func (v *Value) setOrAppend(out reflect.Value, text string) *refusal {
	if v.Kind != Array {
		return v.set(out, text)
	}
	if v.MaxLen >= 0 && out.Len() >= v.MaxLen {
		return &refusal{problem: "must be sent at most " + strconv.Itoa(v.MaxLen) + " times"}
	}
	elem := reflect.New(out.Type().Elem()).Elem()
	if r := v.Elem.set(elem, text); r != nil {
		return r
	}
	out.Set(reflect.Append(out, elem))
	return nil
}

func (t *Table) parameters() string {
	if len(t.Query) == 0 {
		return "it has no parameters"
	}
	names := make([]string, len(t.Query))
	for i, f := range t.Query {
		names[i] = f.Name
	}
	return "the parameters are " + strings.Join(names, ", ")
}

// EncodeQuery encodes the fields of in, a value of the table's type, as DecodeQuery reads
// them. The result begins with a question mark, or is empty. It omits a field that is nil
// or zero unless the field is required, and repeats the parameter for each element of an
// array. It does not check limits.
func (t *Table) EncodeQuery(in any) string {
	values := url.Values{}
	from := reflect.ValueOf(in)
	for i := range t.Query {
		f := &t.Query[i]
		switch v := from.FieldByIndex(f.index); {
		case f.Value.Kind == Array:
			for _, elem := range v.Seq2() {
				values.Add(f.Name, formatScalar(elem))
			}
		case f.pointer && !v.IsNil():
			values.Set(f.Name, formatScalar(v.Elem()))
		case !f.pointer && (f.Required || !isZero(v)):
			values.Set(f.Name, formatScalar(v))
		}
	}
	if len(values) == 0 {
		return ""
	}
	return "?" + values.Encode()
}

// formatScalar returns the text of a scalar, which set reads.
func formatScalar(v reflect.Value) string {
	switch s := v.Interface().(type) {
	case time.Time:
		return s.Format(time.RFC3339Nano)
	case encoding.TextMarshaler:
		text, err := s.MarshalText()
		if err == nil {
			return string(text)
		}
	}
	return fmt.Sprint(v)
}

// EncodePath returns a route's path in which the values of in, a value of the table's type, replace the field names. It
// refuses a value that DecodePath would refuse or that would change the path. The error begins with the name of the
// field.
func (t *Table) EncodePath(path string, in any) (string, error) {
	from := reflect.ValueOf(in)
	for i := range t.Path {
		f := &t.Path[i]
		text := formatScalar(from.FieldByIndex(f.index))
		if r := f.Value.segment(text); r != nil {
			return "", errors.New(f.Name + ": " + r.problem)
		}
		escaped := url.PathEscape(text)
		if f.Rest {
			escaped = strings.ReplaceAll(escaped, "%2F", "/")
		}
		path = strings.ReplaceAll(path, "{"+f.Name+"}", escaped)
	}
	return path, nil
}

// segment refuses a text that cannot be a path segment: for a server, an empty segment or a segment of dots means
// another path.
func (v *Value) segment(text string) *refusal {
	switch text {
	case "":
		return &refusal{problem: "must not be empty; " + v.instruction()}
	case ".", "..":
		return &refusal{problem: "must not be " + text + ", which has a special meaning in a path"}
	}
	return v.set(reflect.New(v.Type).Elem(), text)
}

// DecodePath decodes the path segments into the fields of out.
func (t *Table) DecodePath(segment func(name string) string, out any) error {
	for i := range t.Path {
		f := &t.Path[i]
		if r := f.Value.set(f.target(reflect.ValueOf(out).Elem()), segment(f.Name)); r != nil {
			return r.in(f.Name).err()
		}
	}
	return nil
}

// isZero calls the method IsZero of the value if there is one, because a zero time may have any time zone.
func isZero(v reflect.Value) bool {
	if z, ok := v.Interface().(interface{ IsZero() bool }); ok {
		return z.IsZero()
	}
	return v.IsZero()
}

// NeedsSecret reports whether each request has a member that only the caller and the key
// server may see.
func (t *Table) NeedsSecret() bool {
	return slices.ContainsFunc(t.Body, func(f Field) bool { return f.Secret && f.Required })
}

// Secrets returns the names of the members of the body whose value is secret and present.
func (t *Table) Secrets(in any) []string {
	var names []string
	v := reflect.ValueOf(in).Elem()
	for _, f := range t.Body {
		if f.Secret && !v.FieldByIndex(f.index).IsZero() {
			names = append(names, f.Name)
		}
	}
	return names
}
