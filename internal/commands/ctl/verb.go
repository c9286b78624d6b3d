package ctl

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
)

// verb is a route as a command.
type verb struct {
	route  routes.Route
	words  []string // nouns, and what is done
	path   []field  // in the order of the path
	query  []field
	body   []field
	stream string // the member that may be of any length; empty where none may
	open   bool   // no session is needed, and none is looked at
	maybe  bool   // no session is needed, and one is looked at
	answer value
	json   bool // the answer is JSON
}

// field is what one flag or argument gives.
type field struct {
	name     string // on the wire
	flag     string
	required bool
	secret   bool
	value
}

// table is all verbs with their document.
type table struct {
	*document
	verbs []*verb
	about map[string]string // of a noun, by its words
}

func newTable() (*table, error) {
	text, err := routes.OpenAPI()
	if err != nil {
		return nil, err
	}
	d, err := readDocument(text)
	if err != nil {
		return nil, fmt.Errorf("the OpenAPI document: %w", err)
	}
	t := &table{document: d, about: map[string]string{}}
	most := map[string]int{}
	for _, noun := range routes.Nouns() {
		of := map[string]int{}
		for _, r := range noun.Routes {
			v, err := t.verb(r)
			if err != nil {
				return nil, err
			}
			t.verbs = append(t.verbs, v)
			for n := 1; n < len(v.words); n++ { // the first segments stand for what most of their routes are about
				group := strings.Join(v.words[:n], " ")
				if of[group]++; of[group] > most[group] {
					most[group], t.about[group] = of[group], noun.About
				}
			}
		}
	}
	return t, nil
}

func (t *table) verb(r routes.Route) (*verb, error) {
	o := t.Paths[r.Path][strings.ToLower(r.Method)]
	if o == nil {
		return nil, fmt.Errorf("the OpenAPI document has no %s %s", r.Method, r.Path)
	}
	v := &verb{route: r, words: name(r.Path, r.Name), open: !r.Session}
	for _, p := range o.Parameters {
		if p.Ref != "" {
			p = t.Components.Parameters[p.Ref[strings.LastIndexByte(p.Ref, '/')+1:]]
		}
		f := field{name: p.Name, flag: flagName(p.Name), required: p.Required, value: t.value(p.Schema)}
		if p.Description != "" {
			f.doc = p.Description
		}
		f.standFor(f.name)
		switch p.In {
		case "path":
			if f.name == "id" && strings.Contains(r.Path, principalPath) {
				f.stands = aPrincipal
			}
			v.path = append(v.path, f)
		case "query":
			v.query = append(v.query, f)
		}
	}
	if o.RequestBody != nil {
		for _, p := range t.value(o.RequestBody.Content["application/json"].Schema).fields {
			v.body = append(v.body, field{name: p.name, flag: flagName(p.name), required: p.required, secret: r.Secret(p.name), value: p.value})
		}
	}
	if r.Streamed() {
		v.stream = v.body[len(v.body)-1].name // what is read while it is worked on is behind all else
	}
	v.maybe = v.open && len(o.Security) > 1
	v.open = v.open && !v.maybe
	v.answer, v.json = t.answer(o)
	return v, nil
}

var versioned = regexp.MustCompile(`^v[0-9]+$`)

// name derives the words of a verb: the literal segments of the path are nouns, the first
// word of the operationId is what is done. A last segment that says it already is not
// repeated: /api/keys/rotate, rotateKey, is "keys rotate".
func name(path, operation string) []string {
	var nouns []string
	for segment := range strings.SplitSeq(strings.TrimPrefix(path, "/api"), "/") {
		if segment == "" || segment[0] == '{' || versioned.MatchString(segment) {
			continue
		}
		noun, _, _ := strings.Cut(segment, ".") // a file is called by its name
		nouns = append(nouns, noun)
	}
	last := strings.ReplaceAll(nouns[len(nouns)-1], "-", "")
	if len(nouns) > 1 && strings.HasPrefix(strings.ToLower(operation), last) {
		return nouns
	}
	first := strings.IndexFunc(operation, unicode.IsUpper)
	if first < 0 {
		first = len(operation)
	}
	return append(nouns, operation[:first])
}

// own are the flags that every verb has; a field of the same name has another one.
var own = map[string]bool{
	"server": true, "context": true, "ca-file": true, "external-url": true, "output": true, "columns": true, "field": true, "for": true,
	"file": true, "help": true, "all": true, "ask": true, "to": true, "owned-by": true,
}

// flagName spells a field as a flag: principalId is --principal-id.
func flagName(field string) string {
	flag := dashed(field)
	if own[flag] {
		return "with-" + flag
	}
	return flag
}

func dashed(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 && !unicode.IsUpper(rune(name[i-1])) {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return strings.ReplaceAll(b.String(), "_", "-")
}

// find returns the verb of that name.
func (t *table) find(name string) *verb {
	for _, v := range t.verbs {
		if strings.Join(v.words, " ") == name {
			return v
		}
	}
	return nil
}
