package ctl

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/cmdline"
)

// showable returns an error if --field or --columns does not match the schema of the response or of its rows. Call it
// before the request is sent. Otherwise a command could create a key but not print its handle.
func (o *options) showable(answer, of *value) error {
	if o.field != "" && o.picks(answer, of) == nil {
		return cmdline.Usagef("--field is %q; %s", o.field, fieldsNear(answer, of, o.field))
	}
	if len(o.columns) == 0 {
		return nil
	}
	if of == nil {
		return cmdline.Usagef("--columns: the response is not a list; use --field to print one member of it")
	}
	for _, name := range o.columns {
		if !of.has(name) {
			return cmdline.Usagef("--columns: there is no column %q; the columns are %s", name, strings.Join(of.names(), ", "))
		}
	}
	return nil
}

// picks returns the schema at the path of --field: in the response, or else in the rows of a listing. It returns nil if
// neither has the path.
func (o *options) picks(answer, of *value) *value {
	path := strings.Split(o.field, ".")
	switch {
	case answer.at(path) != nil:
		return answer
	case of != nil && of.at(path) != nil:
		return of
	default:
		return nil
	}
}

// at returns the schema at a path, or nil if there is none. In a list, the path continues in the elements. In a value
// without a schema, every path exists.
func (v *value) at(path []string) *value {
	if len(path) == 0 {
		return v
	}
	first, rest := path[0], path[1:]
	if v.kind == array {
		return v.of.at(path)
	}
	if v.kind == free {
		return &value{kind: free}
	}
	for i := range v.fields {
		if v.fields[i].name == first {
			return v.fields[i].at(rest)
		}
	}
	return nil
}

// fieldsNear lists existing members, for an error about a path that does not exist.
func fieldsNear(answer, of *value, path string) string {
	words := strings.Split(path, ".")
	for n := len(words) - 1; n > 0; n-- {
		for _, root := range []*value{answer, of} {
			if root == nil {
				continue
			}
			have := root.at(words[:n])
			if have != nil && have.kind == array {
				have = have.of
			}
			if have != nil {
				return strings.Join(words[:n], ".") + " has " + orNone(have.names())
			}
		}
	}
	names := answer.names()
	if of != nil && of != answer {
		names = append(names, of.names()...)
	}
	return "the response has " + orNone(names)
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "no members"
	}
	return strings.Join(names, ", ")
}

// fields returns the possible values of --field, for completion.
func (v *verb) fields() []string {
	names := v.answer.names()
	if of, _ := listed(v, nil); of != nil {
		names = append(names, of.names()...)
	}
	return names
}

// member prints the member that --field names: of the response, or of each row.
func (p *printer) member(v *verb, answer jsontext.Value) error {
	of, rows := listed(v, answer)
	if p.picks(&v.answer, of) == &v.answer {
		return p.one(answer)
	}
	for _, row := range rows {
		if err := p.one(row); err != nil {
			return err
		}
	}
	return nil
}

// one prints the member of one object, or an empty line if the object has no such member.
func (p *printer) one(from jsontext.Value) error {
	for _, value := range within(from, strings.Split(p.field, ".")) {
		if _, err := fmt.Fprintln(p.out, printableWithTabs(plain(value))); err != nil {
			return err
		}
	}
	return nil
}

// within returns the values at a path. In a list, it continues in each element.
func within(from jsontext.Value, path []string) []jsontext.Value {
	if len(path) == 0 {
		return []jsontext.Value{from}
	}
	if from.Kind() == '[' {
		var list, all []jsontext.Value
		if json.Unmarshal(from, &list) != nil {
			return nil
		}
		for _, one := range list {
			all = append(all, within(one, path)...)
		}
		return all
	}
	var all members[jsontext.Value]
	if from.Kind() != '{' || json.Unmarshal(from, &all) != nil {
		return []jsontext.Value{nil}
	}
	value, _ := all.get(path[0])
	return within(value, path[1:])
}
