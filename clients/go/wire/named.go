package wire

import (
	"reflect"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// These values of the tag "names" are not kinds of objects. Unnamed: the value names no object. Home: it is the key
// server of the principal in the same JSON object. OfKind: it is the kind of the object named there. ByRoute: the route
// has the kind.
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
	Home  *schema.SystemID // the key server, if the request contains it; otherwise nil
	Of    string           // the kind, if the request contains it; otherwise empty
}

// Names returns the values of path, query and body that name objects.
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

// present returns the elements of a list, the value of a pointer unless it
// is nil, or the value.
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

// FieldsWithoutKind returns the names of fields that have one of the types, but no kind of object in their tag "names".
func (t *Table) FieldsWithoutKind(types []reflect.Type, kinds []string) []string {
	var names []string
	for _, fields := range [][]Field{t.Path, t.Query, t.Body} {
		for _, f := range fields {
			v := f.Value
			if v.Elem != nil {
				v = *v.Elem
			}
			if v.Members != nil {
				names = append(names, v.Members.FieldsWithoutKind(types, kinds)...)
			}
			if slices.Contains(types, v.Type) && !slices.Contains(kinds, f.Names) {
				names = append(names, t.Type.Name()+"."+f.Name)
			}
		}
	}
	return names
}
