package wire

import (
	"maps"
	"reflect"
	"strconv"
)

// Schemas collects the JSON Schemas (draft 2020-12, as OpenAPI 3.1 uses it) of
// types by their Go names.
type Schemas map[string]any

// Ref returns a reference to the schema of t's body, which it adds with all
// that it refers to.
func (s Schemas) Ref(t reflect.Type) map[string]any {
	name := t.Name()
	if _, ok := s[name]; !ok {
		s[name] = nil // a type may refer to itself
		s[name] = s.object(Of(t))
	}
	return map[string]any{"$ref": "#/components/schemas/" + name}
}

func (s Schemas) object(t *Table) map[string]any {
	properties := map[string]any{}
	required := []any{}
	for _, f := range t.Body {
		properties[f.Name] = s.Field(f)
		if f.Required {
			required = append(required, f.Name)
		}
	}
	o := map[string]any{"type": "object", "properties": properties}
	if len(required) > 0 {
		o["required"] = required
	}
	return o
}

// Field returns the schema of one field.
func (s Schemas) Field(f Field) map[string]any {
	v := s.value(&f.Value)
	if f.Nullable {
		v = nullable(v)
	}
	if f.Doc != "" {
		v["description"] = f.Doc
	}
	return v
}

func nullable(v map[string]any) map[string]any {
	if t, ok := v["type"].(string); ok && v["enum"] == nil {
		v["type"] = []any{t, "null"}
		return v
	}
	return map[string]any{"oneOf": []any{v, map[string]any{"type": "null"}}}
}

func (s Schemas) value(v *Value) map[string]any {
	if v.Scalar != nil {
		return s.scalar(v)
	}
	switch v.Kind {
	case Boolean:
		return enumerate(map[string]any{"type": "boolean"}, v)
	case Integer:
		o := map[string]any{"type": "integer"}
		bound(o, "minimum", v.Min)
		bound(o, "maximum", v.Max)
		return enumerate(o, v)
	case Time:
		return map[string]any{"type": "string", "format": "date-time"}
	case Array:
		o := map[string]any{"type": "array", "items": s.value(v.Elem)}
		if v.MinLen > 0 {
			o["minItems"] = v.MinLen
		}
		if v.MaxLen >= 0 {
			o["maxItems"] = v.MaxLen
		}
		return o
	case Map:
		return map[string]any{"type": "object", "additionalProperties": s.value(v.Elem)}
	case Object:
		return s.Ref(v.Type)
	default:
		o := map[string]any{"type": "string"}
		bound(o, "minLength", v.Min)
		bound(o, "maxLength", v.Max)
		return enumerate(o, v)
	}
}

func (s Schemas) scalar(v *Value) map[string]any {
	o := maps.Clone(v.Scalar.JSON)
	if v.Scalar.Secret {
		bound(o, "minLength", v.Min)
		bound(o, "maxLength", v.Max)
	}
	if v.Scalar.Binary && v.Max != nil {
		o["maxLength"] = (*v.Max + 2) / 3 * 4
		if v.Min != nil && *v.Min > 0 {
			o["minLength"] = (*v.Min + 2) / 3 * 4
		}
	}
	return o
}

func bound(o map[string]any, name string, n *int64) {
	if n != nil {
		o[name] = *n
	}
}

// enumerate writes the values in the JSON type that they have.
func enumerate(o map[string]any, v *Value) map[string]any {
	if len(v.Enum) == 0 {
		return o
	}
	values := make([]any, len(v.Enum))
	for i, e := range v.Enum {
		switch v.Kind {
		case Integer:
			n, err := strconv.ParseInt(e, 10, 64)
			if err != nil {
				panic("wire: an enum of integers has " + e)
			}
			values[i] = n
		case Boolean:
			values[i] = e == "true"
		default:
			values[i] = e
		}
	}
	if len(values) == 1 {
		o["const"] = values[0]
	} else {
		o["enum"] = values
	}
	return o
}
