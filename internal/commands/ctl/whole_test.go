package ctl

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// TestAllPagesAreOneDocument checks that all pages, even empty ones, give one document. Incomplete JSON must be
// invalid.
func TestAllPagesAreOneDocument(t *testing.T) {
	v := theTable(t).find("keys list")
	pages := func(rows ...string) []string {
		var out []string
		for i, r := range rows {
			next := `"AAAA"`
			if i == len(rows)-1 {
				next = "null"
			}
			out = append(out, `{"count":1,"keys":[`+r+`],"next":`+next+`,"detail":"this page"}`)
		}
		return out
	}
	a, b, c := `{"ttag":"a","uses":9007199254740993}`, `{"ttag":"b\u202e\u001b\u3164","uses":2}`, `{"ttag":"c","tags":[{"x":"1001"},[]]}`
	for reason, said := range map[string]struct {
		pages []string
		rows  int
	}{
		"three pages": {pages(a, b, c), 3}, "one page": {pages(a + "," + b), 2}, "none": {pages(""), 0}, "empty ones among them": {pages("", a, "", b, ""), 2},
	} {
		for _, form := range []string{asJSON, asYAML} {
			var out bytes.Buffer
			p := &printer{options: &options{output: form, all: true}, out: &out, notes: &out}
			var w pagedDocument
			for i, page := range said.pages {
				if i > 0 && form == asJSON && jsontext.Value(out.String()).IsValid() {
					t.Errorf("%s: a part is a document:\n%s", reason, out.String())
				}
				if err := p.page(v, &w, jsontext.Value(page), i == len(said.pages)-1); err != nil {
					t.Fatal(err)
				}
			}
			if strings.ContainsFunc(out.String(), hidden) {
				t.Errorf("%s, %s: a terminal is told what nobody sees: %q", reason, form, out.String())
			}
			var got struct {
				Keys  []map[string]any `json:"keys" yaml:"keys"`
				Count int              `json:"count" yaml:"count"`
				Next  *string          `json:"next" yaml:"next"`
			}
			var err error
			if form == asJSON {
				err = json.Unmarshal(out.Bytes(), &got)
			} else {
				dec := yaml.NewDecoder(&out)
				text := out.String()
				if err = dec.Decode(&got); strings.Contains(text, "---") {
					t.Errorf("%s: more than one document:\n%s", reason, text)
				}
			}
			if err != nil || len(got.Keys) != said.rows || got.Count != said.rows || got.Next != nil || got.Keys == nil {
				t.Errorf("%s, %s: %+v %v", reason, form, got, err)
			}
		}
	}
}

// TestAsideOfPages checks that lists that only the first page has are printed.
func TestAsideOfPages(t *testing.T) {
	v := theTable(t).find("who-can list")
	var out bytes.Buffer
	p := &printer{options: &options{output: asJSON, all: true}, out: &out, notes: &out}
	var w pagedDocument
	for i, page := range []string{`{"count":0,"who":[],"elsewhere":[{"id":"e"}],"next":"a"}`, `{"count":1,"who":[{"id":"w"}],"elsewhere":[],"next":null}`} {
		if err := p.page(v, &w, jsontext.Value(page), i == 1); err != nil {
			t.Fatal(err)
		}
	}
	text := jsontext.Value(out.String())
	if err := text.Compact(); err != nil || string(text) != `{"who":[{"id":"w"}],"count":1,"elsewhere":[{"id":"e"}],"next":null}` {
		t.Errorf("%s %v", text, err)
	}
}

// TestPagesShareAList checks that every paged response has a list.
func TestPagesShareAList(t *testing.T) {
	for _, v := range theTable(t).verbs {
		if pages(v) == nil {
			continue
		}
		if v.shared() == "" {
			t.Errorf("%s has no list", v.route.Name)
		}
		for _, f := range v.answer.fields {
			if f.kind == array && f.name != v.shared() && !strings.Contains(f.doc, "On the first page") {
				t.Errorf("%s has another list, %s, of which nothing says that the first page has all of it", v.route.Name, f.name)
			}
		}
	}
}
