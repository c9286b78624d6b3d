package wire

import (
	"reflect"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Answers reports whether a text is an answer of the table's type at all, and not a
// gateway's {} or null, which would pass for an empty list: each list that the type must
// have is there, and at least one of all members that it must have. out is what was
// decoded of the text. Other members may be missing, as a server of another release may
// not know them.
func (t *Table) Answers(text []byte, out any) bool {
	v, said := reflect.ValueOf(out).Elem(), false
	for i := range t.Body {
		f := &t.Body[i]
		got := v.FieldByIndex(f.index)
		if f.Required && got.Kind() == reflect.Slice && f.Value.Kind == Array && got.IsNil() {
			return false
		}
		said = said || f.Required && !got.IsZero()
	}
	return said || t.says(text)
}

// says reports whether a text has a member that the type must have, or that there is no such.
func (t *Table) says(text []byte) bool {
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
