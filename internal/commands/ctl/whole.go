package ctl

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// pagedDocument prints all pages of a listing as one document, with only one page in memory. It prints the elements of
// the list page by page, and at the end the other members of the last page.
type pagedDocument struct {
	list  string // the name of the list that is split into pages
	rows  int
	aside members[jsontext.Value] // other lists, which only the first page has
}

// shared returns the name of the list that is split into pages: the first list of the response.
func (v *verb) shared() string {
	for i := range v.answer.fields {
		if v.answer.fields[i].kind == array {
			return v.answer.fields[i].name
		}
	}
	return ""
}

// page prints the next page. The document is complete only after the last page, so that an interrupted output cannot be
// mistaken for a complete list.
func (p *printer) page(v *verb, w *pagedDocument, answer jsontext.Value, last bool) error {
	first := w.list == ""
	w.list = v.shared()
	rows := elements(answer, w.list)
	var all, rest members[jsontext.Value]
	if err := json.Unmarshal(answer, &all); err != nil {
		return err
	}
	if first {
		for _, m := range all {
			if m.value.Kind() == '[' && m.name != w.list {
				w.aside.set(m.name, m.value)
			}
		}
	}
	before := w.rows
	w.rows += len(rows)
	if last {
		rest = w.rest(all)
	}
	if p.output == asYAML {
		return p.yamlPage(w, rows, rest, before == 0 && (last || len(rows) > 0), last)
	}
	return p.jsonPage(w, rows, rest, first, before, last)
}

// rest returns the members except the list. The count is the sum of all pages. The member detail is removed, because it
// describes only one page.
func (w *pagedDocument) rest(all members[jsontext.Value]) members[jsontext.Value] {
	rest := members[jsontext.Value]{}
	for _, m := range all {
		switch m.name {
		case w.list, "detail":
		case "count":
			rest.set(m.name, jsontext.Value(strconv.Itoa(w.rows)))
		default:
			rest.set(m.name, m.value)
			if list, ok := w.aside.get(m.name); ok {
				rest.set(m.name, list)
			}
		}
	}
	return rest
}

func (p *printer) jsonPage(w *pagedDocument, rows []jsontext.Value, rest members[jsontext.Value], first bool, before int, last bool) error {
	var b strings.Builder
	if first {
		fmt.Fprintf(&b, "{\n  %s: [", strconv.Quote(w.list))
	}
	for i, row := range rows {
		if err := row.Indent(jsontext.WithIndentPrefix("    "), jsontext.WithIndent("  ")); err != nil {
			return err
		}
		if before+i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n    " + string(row))
	}
	if last {
		if w.rows > 0 {
			b.WriteString("\n  ")
		}
		b.WriteByte(']')
		for _, m := range rest {
			if err := m.value.Indent(jsontext.WithIndentPrefix("  "), jsontext.WithIndent("  ")); err != nil {
				return err
			}
			fmt.Fprintf(&b, ",\n  %s: %s", strconv.Quote(m.name), m.value)
		}
		b.WriteString("\n}\n")
	}
	_, err := io.WriteString(p.out, escaped(b.String()))
	return err
}

// yamlPage prints the rows of a page. Only the first row has the key of the list before it.
func (p *printer) yamlPage(w *pagedDocument, rows []jsontext.Value, rest members[jsontext.Value], headed, last bool) error {
	if headed || len(rows) > 0 {
		list, err := json.Marshal(rows)
		if err != nil {
			return err
		}
		text, err := inYAML(members[jsontext.Value]{{w.list, list}})
		if err != nil {
			return err
		}
		if !headed {
			_, text, _ = bytes.Cut(text, []byte("\n"))
		}
		if _, err := p.out.Write(text); err != nil {
			return err
		}
	}
	if !last || len(rest) == 0 {
		return nil
	}
	text, err := inYAML(rest)
	if err != nil {
		return err
	}
	_, err = p.out.Write(text)
	return err
}

func inYAML(all members[jsontext.Value]) ([]byte, error) {
	text, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	n, err := node(text)
	if err != nil {
		return nil, err
	}
	return escapeYAML(n)
}
