package ctl

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// table prints a response as a table.
func (p *printer) table(v *verb, answer jsontext.Value) error {
	of, rows := listed(v, answer)
	if of != nil {
		if len(rows) == 0 && !p.behind {
			fmt.Fprintln(p.notes, "there are none")
			return nil
		}
		return p.columnsOf(of, rows)
	}
	var all members[jsontext.Value]
	if json.Unmarshal(answer, &all) != nil || v.answer.kind != object {
		return p.json(answer)
	}
	return p.record(&v.answer, all)
}

// line is one printed member of an object.
type line struct{ name, text string }

// record prints an object: a line for each member, and a table for each list of objects.
func (p *printer) record(of *value, all members[jsontext.Value]) error {
	var lines []line
	var tables []func() error
	var walk func(prefix string, of *value, all members[jsontext.Value])
	walk = func(prefix string, of *value, all members[jsontext.Value]) {
		for _, m := range ordered(of, all) {
			var inner members[jsontext.Value]
			is := &m.is
			switch {
			case is.name == "JSON" && m.text.Kind() == '{':
				tables = append(tables, func() error { return p.sent(prefix+m.name, all, m.text) })
			case is.kind == object && m.text.Kind() == '{' && json.Unmarshal(m.text, &inner) == nil:
				walk(prefix+m.name+".", is, inner)
			case is.kind == array && is.of.kind == object:
				var rows []jsontext.Value
				if json.Unmarshal(m.text, &rows) == nil && len(rows) > 0 {
					tables = append(tables, func() error { return p.below(prefix+m.name, is.of, rows) })
				}
			default:
				if text := cell(is, m.text); text != "" {
					lines = append(lines, line{prefix + m.name, text})
				}
			}
		}
	}
	walk("", of, all)
	names := 0
	for _, l := range lines {
		names = max(names, utf8.RuneCountInString(l.name))
	}
	names = min(names, p.width/2)
	for _, l := range lines {
		rest := max(p.width-names-2, 10)
		for i, part := range strings.Split(fold(l.text, rest), "\n") {
			name := l.name
			if i > 0 {
				name = ""
			}
			if _, err := fmt.Fprintf(p.out, "%s  %s\n", p.bold(pad(cut(name, names), names)), part); err != nil {
				return err
			}
		}
	}
	for i, show := range tables {
		if i > 0 || len(lines) > 0 {
			fmt.Fprintln(p.out)
		}
		if err := show(); err != nil {
			return err
		}
	}
	return nil
}

func (p *printer) below(title string, of *value, rows []jsontext.Value) error {
	if _, err := fmt.Fprintln(p.out, p.bold(cut(title, p.width))); err != nil {
		return err
	}
	under := *p
	under.options = &options{output: asTable}
	under.behind, under.chosen, under.now = false, nil, time.Time{}
	return under.columnsOf(of, rows)
}

// found is a member with its schema.
type found struct {
	name string
	is   value
	text jsontext.Value
}

// ordered returns the members in the order of the schema, and then members without a schema.
func ordered(of *value, all members[jsontext.Value]) []found {
	var out []found
	for _, f := range of.fields {
		if text, ok := all.get(f.name); ok {
			out = append(out, found{f.name, f.value, text})
		}
	}
	for _, m := range all {
		if !of.has(m.name) {
			out = append(out, found{printable(m.name), value{kind: free}, m.value})
		}
	}
	return out
}

func (p *printer) bold(s string) string {
	if !p.color || s == "" {
		return s
	}
	return "\x1b[1m" + s + "\x1b[0m"
}

// cell returns a value as one line. null and a missing value give "".
func cell(is *value, v jsontext.Value) string {
	switch v.Kind() {
	case 'n', 0:
		return ""
	case '"':
		return printable(spoken(is, plain(v)))
	case '[':
		var list []jsontext.Value
		if json.Unmarshal(v, &list) != nil {
			return ""
		}
		of := is.of
		if of == nil {
			of = &value{kind: free}
		}
		texts := make([]string, 0, len(list))
		for _, one := range list {
			texts = append(texts, cell(of, one))
		}
		return strings.Join(texts, ", ")
	case '{':
		return called(is, v)
	default:
		return printable(string(v))
	}
}

// called returns an object as the text of one cell: its name and validity period, or else its members.
func called(is *value, v jsontext.Value) string {
	var all members[jsontext.Value]
	if json.Unmarshal(v, &all) != nil {
		return ""
	}
	if name, ok := all.get("name"); ok && name.Kind() == '"' {
		text := printable(plain(name))
		for _, bound := range []struct{ member, word string }{{"startTime", "from"}, {"endTime", "until"}} {
			raw, _ := all.get(bound.member)
			if at, _ := stamped(plain(raw)); at != "" {
				text += " " + bound.word + " " + at
			}
		}
		return text
	}
	var parts []string
	for _, m := range ordered(is, all) {
		if text := cell(&m.is, m.text); text != "" {
			parts = append(parts, m.name+"="+text)
		}
	}
	return strings.Join(parts, " ")
}

// spoken returns a text in a format for users.
func spoken(is *value, s string) string {
	switch {
	case is.kind == instant:
		if at, err := time.Parse(time.RFC3339, s); err == nil {
			return at.UTC().Format(time.RFC3339)
		}
	case is.refKind == refOperation:
		if i := slices.IndexFunc(keyserver.Operations, func(op keyserver.Operation) bool { return op.ID.Hex() == s }); i >= 0 {
			return keyserver.Operations[i].Name
		}
	case is.name == "Stamp":
		if at, ok := stamped(s); ok {
			return at
		}
	}
	return s
}
