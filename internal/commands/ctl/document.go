package ctl

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// document has the parts of the OpenAPI document that ctl uses.
type document struct {
	Paths      map[string]map[string]*operation
	Components struct {
		Schemas    map[string]*shape
		Parameters map[string]*parameter
	}
}

type operation struct {
	Security    []map[string][]string
	Parameters  []*parameter
	RequestBody *struct{ Content map[string]media }
	Responses   map[string]struct{ Content map[string]media }
}

type media struct{ Schema *shape }

type parameter struct {
	Ref         string `json:"$ref"`
	Name        string
	In          string
	Required    bool
	Description string
	Schema      *shape
}

// shape is a JSON schema, with the keywords that the document uses.
type shape struct {
	Ref             string `json:"$ref"`
	Type            words
	Description     string
	Format          string
	ContentEncoding string
	MinLength       *int64
	MaxLength       *int64
	Minimum         *int64
	Maximum         *int64
	Enum            []jsontext.Value
	Items           *shape
	Required        []string
	Properties      members[*shape]
	OneOf           []*shape
}

// words is a JSON string or a list of strings.
type words []string

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (w *words) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() == '"' {
		*w = words{""}
		return json.UnmarshalDecode(dec, &(*w)[0])
	}
	var list []string
	err := json.UnmarshalDecode(dec, &list)
	*w = list
	return err
}

// member is one name and value of a JSON object.
type member[T any] struct {
	name  string
	value T
}

// members has the members of a JSON object in their order, which readers of the document need.
type members[T any] []member[T]

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (m *members[T]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() != '{' {
		var none map[string]T
		return json.UnmarshalDecode(dec, &none)
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	*m = members[T]{}
	for dec.PeekKind() != '}' {
		var one member[T]
		if err := json.UnmarshalDecode(dec, &one.name); err != nil {
			return err
		}
		if err := json.UnmarshalDecode(dec, &one.value); err != nil {
			return err
		}
		*m = append(*m, one)
	}
	_, err := dec.ReadToken()
	return err
}

// MarshalJSONTo implements json.MarshalerTo.
func (m members[T]) MarshalJSONTo(enc *jsontext.Encoder) error {
	if err := enc.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	for _, one := range m {
		if err := enc.WriteToken(jsontext.String(one.name)); err != nil {
			return err
		}
		if err := json.MarshalEncode(enc, one.value); err != nil {
			return err
		}
	}
	return enc.WriteToken(jsontext.EndObject)
}

func (m members[T]) get(name string) (value T, ok bool) {
	at := slices.IndexFunc(m, func(one member[T]) bool { return one.name == name })
	if at < 0 {
		return value, false
	}
	return m[at].value, true
}

// set replaces a member, or appends it.
func (m *members[T]) set(name string, value T) {
	at := slices.IndexFunc(*m, func(one member[T]) bool { return one.name == name })
	if at >= 0 {
		(*m)[at].value = value
		return
	}
	*m = append(*m, member[T]{name, value})
}

func readDocument(text []byte) (*document, error) {
	d := &document{}
	return d, json.Unmarshal(text, d, json.MatchCaseInsensitiveNames(true))
}

// kind is the type of a value.
type kind int

const (
	text kind = iota
	integer
	boolean
	instant // RFC 3339
	array
	object
	either // a number, or a list of names
	free   // an object without a schema
)

// value is a schema with its references resolved. It determines flags and columns.
type value struct {
	kind    kind
	name    string // name of the schema, such as HiddenLink, or ""
	doc     string
	enum    []string
	low     *int64 // the minimum of a number
	high    *int64
	long    *int64 // the maximum length in characters
	of      *value // schema of the elements of an array
	fields  []property
	refKind refKind // kind of object that an identifier refers to
}

// property is a member of an object.
type property struct {
	name     string
	required bool
	value
}

// nothingBelow is the depth at which schemas are cut, because some are recursive.
const nothingBelow = 6

func (d *document) value(s *shape) value { return d.read(s, nothingBelow) }

func (d *document) read(s *shape, depth int) value {
	if s == nil || depth == 0 {
		return value{kind: free}
	}
	if s.Ref != "" {
		name := s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
		v := d.read(d.Components.Schemas[name], depth)
		v.name = name
		if s.Description != "" {
			v.doc = s.Description
		}
		if s.MaxLength != nil {
			v.long = s.MaxLength
		}
		return v
	}
	if len(s.OneOf) > 0 {
		return d.choice(s, depth)
	}
	v := value{doc: s.Description, low: s.Minimum, high: s.Maximum, long: s.MaxLength}
	for _, e := range s.Enum {
		v.enum = append(v.enum, plain(e))
	}
	switch {
	case slices.Contains(s.Type, "array"):
		of := d.read(s.Items, depth-1)
		v.kind, v.of = array, &of
	case slices.Contains(s.Type, "object") && len(s.Properties) > 0:
		v.kind = object
		for _, p := range s.Properties {
			is := d.read(p.value, depth-1)
			is.setRefKind(p.name)
			v.fields = append(v.fields, property{p.name, slices.Contains(s.Required, p.name), is})
		}
	case slices.Contains(s.Type, "object"):
		v.kind = free
	case slices.Contains(s.Type, "integer"):
		v.kind = integer
	case slices.Contains(s.Type, "boolean"):
		v.kind = boolean
	case s.Format == "date-time":
		v.kind = instant
	}
	return v
}

// choice returns the value of a schema that allows null or two types.
func (d *document) choice(s *shape, depth int) value {
	var types []value
	for _, one := range s.OneOf {
		if !slices.Equal(one.Type, words{"null"}) {
			types = append(types, d.read(one, depth))
		}
	}
	v := types[0]
	if len(types) > 1 {
		v = value{kind: either, name: v.name, low: v.low, high: v.high}
		for _, one := range types {
			if one.kind == array {
				v.enum = one.of.enum
			}
		}
	}
	if s.Description != "" {
		v.doc = s.Description
	}
	return v
}

// plain returns the text of a JSON value. A string has no quotes.
func plain(v jsontext.Value) string {
	var s string
	if v.Kind() == '"' && json.Unmarshal(v, &s) == nil {
		return s
	}
	return string(v)
}

// answer returns the schema of a successful response. It returns false if the response is not JSON.
func (d *document) answer(o *operation) (value, bool) {
	body, ok := o.Responses["200"].Content["application/json"]
	if !ok {
		return value{}, false
	}
	return d.value(body.Schema), true
}
