package wire

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Schema is the part of JSON Schema (draft 2020-12, as in OpenAPI 3.1) that tables need.
type Schema struct {
	Ref                  string           `json:"$ref,omitzero"`
	Type                 any              `json:"type,omitzero"` // a word, or a list of words
	Description          string           `json:"description,omitzero"`
	Format               string           `json:"format,omitzero"`
	ContentEncoding      string           `json:"contentEncoding,omitzero"`
	Pattern              string           `json:"pattern,omitzero"`
	MinLength            *int64           `json:"minLength,omitzero"`
	MaxLength            *int64           `json:"maxLength,omitzero"`
	Minimum              *int64           `json:"minimum,omitzero"`
	Maximum              *int64           `json:"maximum,omitzero"`
	Const                any              `json:"const,omitzero"`
	Enum                 []any            `json:"enum,omitzero"`
	Examples             []jsontext.Value `json:"examples,omitzero"`
	MinItems             int              `json:"minItems,omitzero"`
	MaxItems             *int             `json:"maxItems,omitzero"`
	Items                *Schema          `json:"items,omitzero"`
	AdditionalProperties *Schema          `json:"additionalProperties,omitzero"`
	Required             []string         `json:"required,omitzero"`
	Properties           Members[*Schema] `json:"properties,omitzero"`
	AllOf                []*Schema        `json:"allOf,omitzero"`
	OneOf                []*Schema        `json:"oneOf,omitzero"`
}

// Members are the members of an object in a meaningful order, which is
// seldom that of the names.
type Members[T any] []Member[T]

// Member is a member of an object.
type Member[T any] struct {
	Name  string
	Value T
}

// MarshalJSONTo encodes the members as an object.
func (m Members[T]) MarshalJSONTo(enc *jsontext.Encoder) error {
	if err := enc.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	for _, one := range m {
		if err := enc.WriteToken(jsontext.String(one.Name)); err != nil {
			return err
		}
		if err := json.MarshalEncode(enc, one.Value); err != nil {
			return err
		}
	}
	return enc.WriteToken(jsontext.EndObject)
}

// Reference returns a reference to the schema with the name.
func Reference(name string) *Schema { return &Schema{Ref: "#/components/schemas/" + name} }

// OneOf returns an enum of the values, or a const if there is only one.
func OneOf[T any](values ...T) *Schema {
	if len(values) == 1 {
		return &Schema{Const: values[0]}
	}
	s := &Schema{}
	for _, v := range values {
		s.Enum = append(s.Enum, v)
	}
	return s
}

// Direction is the direction of a value. Two scalars have more spellings in a request
// than in a response.
type Direction int

// The directions.
const (
	InRequest Direction = iota
	InResponse
)

// Schemas collects the schemas of types by their Go names.
type Schemas struct {
	Named     map[string]*Schema
	direction map[string]Direction // of the types that have a scalar of two spellings
}

// NewSchemas returns an empty collection.
func NewSchemas() Schemas {
	return Schemas{Named: map[string]*Schema{}, direction: map[string]Direction{}}
}

// Ref returns a reference to the schema of t's body. It adds that schema and all schemas
// that it refers to.
func (s Schemas) Ref(t reflect.Type, way Direction) *Schema {
	name := t.Name()
	if _, ok := s.Named[name]; !ok {
		s.Named[name] = nil // a type may refer to itself
		s.Named[name] = s.object(Of(t), way)
	}
	if known, twofold := s.direction[name]; twofold && known != way {
		panic(fmt.Sprintf("wire: %s has different JSON forms in requests and responses; use two types", t))
	}
	return Reference(name)
}

func (s Schemas) object(t *Table, way Direction) *Schema {
	o := &Schema{Type: "object", Properties: Members[*Schema]{}}
	for _, f := range t.Body {
		if f.Value.twofold() {
			s.direction[t.Type.Name()] = way
		}
		o.Properties = append(o.Properties, Member[*Schema]{f.Name, s.Field(f, way)})
		if f.Required {
			o.Required = append(o.Required, f.Name)
		}
	}
	return o
}

func (v *Value) twofold() bool {
	for v.Elem != nil {
		v = v.Elem
	}
	return v.Scalar != nil && v.Scalar.RequestSchema != nil
}

// Field returns the schema of one field.
func (s Schemas) Field(f Field, way Direction) *Schema {
	v := s.value(&f.Value, way)
	if f.Nullable {
		v = nullable(v)
	}
	v.Description = f.Doc
	return v
}

func nullable(v *Schema) *Schema {
	if t, ok := v.Type.(string); ok && v.Enum == nil && v.Const == nil {
		v.Type = []string{t, "null"}
		return v
	}
	return &Schema{OneOf: []*Schema{v, {Type: "null"}}}
}

func (s Schemas) value(v *Value, way Direction) *Schema {
	if v.Scalar != nil {
		return s.scalar(v, way)
	}
	switch v.Kind {
	case Boolean:
		return enumerate(&Schema{Type: "boolean"}, v)
	case Integer:
		return enumerate(&Schema{Type: "integer", Minimum: v.Min, Maximum: v.Max}, v)
	case Time:
		return &Schema{Type: "string", Format: "date-time"}
	case Array:
		o := &Schema{Type: "array", Items: s.value(v.Elem, way), MinItems: v.MinLen}
		if v.MaxLen >= 0 {
			o.MaxItems = &v.MaxLen
		}
		return o
	case Map:
		return &Schema{Type: "object", AdditionalProperties: s.value(v.Elem, way)}
	case Object:
		return s.Ref(v.Type, way)
	default:
		if v.EnumName == "" {
			return enumerate(&Schema{Type: "string", MinLength: v.Min, MaxLength: v.Max}, v)
		}
		s.Named[v.EnumName] = enumeration(v.EnumName)
		return Reference(v.EnumName)
	}
}

// enumeration returns the schema of a named enumeration.
func enumeration(name string) *Schema {
	o := OneOf(enums[name]...)
	o.Type = "string"
	return o
}

// scalar returns a reference to the schema of a named wire type, with the limits of the
// field next to it.
func (s Schemas) scalar(v *Value, way Direction) *Schema {
	name, shape := v.Type.Name(), v.Scalar.Schema
	s.Named[name] = shape.shown(v.Scalar)
	if way == InRequest && v.Scalar.RequestSchema != nil {
		name = "Asked" + name
		s.Named[name] = v.Scalar.RequestSchema.shown(v.Scalar)
		maps.Copy(s.Named, v.Scalar.RequestParts)
	}
	o := Reference(name)
	switch {
	case v.Scalar.Secret:
		o.MinLength, o.MaxLength = v.Min, v.Max
	case v.Scalar.Binary && v.Max != nil:
		o.MaxLength = characters(v.Max)
		if v.Min != nil && *v.Min > 0 {
			o.MinLength = characters(v.Min)
		}
	}
	return o
}

// shown returns the schema with the example that tests of the decoder use.
func (o Schema) shown(s *Scalar) *Schema {
	o.Examples = []jsontext.Value{jsontext.Value(s.Example)}
	return &o
}

// characters returns the number of characters of n bytes in base64.
func characters(n *int64) *int64 { return new((*n + 2) / 3 * 4) }

// enumerate adds the allowed values in their JSON type.
func enumerate(o *Schema, v *Value) *Schema {
	if len(v.Enum) == 0 {
		return o
	}
	values := make([]any, len(v.Enum))
	for i, e := range v.Enum {
		switch v.Kind {
		case Integer:
			n, err := strconv.ParseInt(e, 10, 64)
			if err != nil {
				panic("wire: an enum of integers contains " + e)
			}
			values[i] = n
		case Boolean:
			values[i] = e == "true"
		default:
			values[i] = e
		}
	}
	only := OneOf(slices.Clip(values)...)
	o.Const, o.Enum = only.Const, only.Enum
	return o
}
