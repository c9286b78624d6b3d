package wire

import (
	"reflect"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// IsResponse reports whether a text is a response of the type of the table. out is the decoded text. A response has
// each required list and at least one required member. So IsResponse rejects {} and null from a gateway, which a caller
// would take for an empty list. Other members may be missing, because a server of another release may not know them.
func (t *Table) IsResponse(text []byte, out any) bool {
	v, said := reflect.ValueOf(out).Elem(), false
	for i := range t.Body {
		f := &t.Body[i]
		got := v.FieldByIndex(f.index)
		if f.Required && got.Kind() == reflect.Slice && f.Value.Kind == Array && got.IsNil() {
			return false
		}
		said = said || f.Required && !got.IsZero()
	}
	return said || t.hasRequiredMember(text)
}

// hasRequiredMember reports whether a text has at least one required member, or the type has no required members.
func (t *Table) hasRequiredMember(text []byte) bool {
	var members map[string]jsontext.Value
	if json.Unmarshal(text, &members) != nil {
		return false
	}
	must := false
	for _, f := range t.Body {
		if _, there := members[f.Name]; f.Required && there {
			return true
		}
		must = must || f.Required
	}
	return !must
}
