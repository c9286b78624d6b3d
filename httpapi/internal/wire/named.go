package wire

import (
	"reflect"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// Unnamed, Home, OfKind and ByRoute are the values of the tag names that are no
// kind of object: a value that stands for itself, the key server of the principal
// beside it, the kind of the object beside it, and what the route says.
const (
	Unnamed = "-"
	Home    = "home"
	OfKind  = "ofKind"
	ByRoute = "route"
)

// Named is a value of a request that names an object.
type Named struct {
	Kind  string
	Value any              // of a type of package schema
	Home  *schema.SystemID // where it says of which key server; nil elsewhere
	Of    string           // where it says of which kind; empty elsewhere
}

// Names lists what a request names: its path, its query and its body.
func (t *Table) Names(in any) []Named { return t.names(reflect.ValueOf(in).Elem()) }

func (t *Table) names(in reflect.Value) []Named {
	var list []Named
	var home *schema.SystemID
	var of string
	for _, fields := range [][]Field{t.Path, t.Query, t.Body} {
		for i := range fields {
			f := &fields[i]
			for _, v := range present(in.FieldByIndex(f.index)) {
				switch {
				case f.Value.Members != nil:
					list = append(list, f.Value.Members.names(v)...)
				case f.Value.Elem != nil && f.Value.Elem.Members != nil:
					list = append(list, f.Value.Elem.Members.names(v)...)
				case f.Names == Home:
					id, _ := v.Interface().(schema.SystemID)
					home = &id
				case f.Names == OfKind:
					of = v.String()
				case f.Names != "" && f.Names != Unnamed:
					list = append(list, Named{Kind: f.Names, Value: v.Interface()})
				}
			}
		}
	}
	for i := range list {
		if list[i].Home == nil {
			list[i].Home = home
		}
		if list[i].Of == "" {
			list[i].Of = of
		}
	}
	return list
}

// present are the elements of a list, what a pointer points to, or the value.
func present(v reflect.Value) []reflect.Value {
	switch {
	case v.Kind() == reflect.Pointer && v.IsNil():
		return nil
	case v.Kind() == reflect.Pointer:
		return []reflect.Value{v.Elem()}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		list := make([]reflect.Value, v.Len())
		for i := range list {
			list[i] = v.Index(i)
		}
		return list
	default:
		return []reflect.Value{v}
	}
}

// Unmarked names the fields of requests that are of one of these types, and do not
// say which of the kinds they name.
func (t *Table) Unmarked(types []reflect.Type, kinds []string) []string {
	var names []string
	for _, fields := range [][]Field{t.Path, t.Query, t.Body} {
		for _, f := range fields {
			v := f.Value
			if v.Elem != nil {
				v = *v.Elem
			}
			if v.Members != nil {
				names = append(names, v.Members.Unmarked(types, kinds)...)
			}
			if slices.Contains(types, v.Type) && !slices.Contains(kinds, f.Names) {
				names = append(names, t.Type.Name()+"."+f.Name)
			}
		}
	}
	return names
}
