package ctl

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
)

// verb is the command of a route.
type verb struct {
	route  routes.Route
	words  []string // nouns, then the action
	path   []field  // path parameters in their order
	query  []field
	body   []field
	stream string // the member of unlimited length, or ""
	open   bool   // neither needs nor uses a session
	maybe  bool   // uses a session if one is stored, but needs none
	answer value
	json   bool // the response is JSON
}

// field is a member of the request that one flag or argument sets.
type field struct {
	name     string // name in the request
	flag     string
	required bool
	secret   bool
	value
}

// table has all verbs, and the OpenAPI document.
type table struct {
	*document
	verbs []*verb
	about map[string]string // descriptions of nouns, by the words of the noun
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
			for n := 1; n < len(v.words); n++ { // a shared prefix gets the description of the noun with the most routes
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
		f.setRefKind(f.name)
		switch p.In {
		case "path":
			if f.name == "id" && strings.Contains(r.Path, principalPath) {
				f.refKind = refPrincipal
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
		v.stream = v.body[len(v.body)-1].name // the streamed member is the last one
	}
	v.maybe = v.open && len(o.Security) > 1
	v.open = v.open && !v.maybe
	v.answer, v.json = t.answer(o)
	return v, nil
}

var versioned = regexp.MustCompile(`^v[0-9]+$`)

// name returns the words of a verb: the literal segments of the path as nouns, and then the first word of the
// operationId as the action. If a segment is the action already, it becomes the last word and is not repeated: POST
// /api/keys/rotate, rotateKey, becomes "keys rotate".
func name(path, operation string) []string {
	var nouns []string
	for segment := range strings.SplitSeq(strings.TrimPrefix(path, "/api"), "/") {
		if segment == "" || segment[0] == '{' || versioned.MatchString(segment) {
			continue
		}
		noun, _, _ := strings.Cut(segment, ".") // a file name without its extension
		nouns = append(nouns, noun)
	}
	for i, noun := range slices.Backward(nouns) {
		if i > 0 && strings.HasPrefix(strings.ToLower(operation), strings.ReplaceAll(noun, "-", "")) {
			return append(slices.Delete(nouns, i, i+1), noun)
		}
	}
	first := strings.IndexFunc(operation, unicode.IsUpper)
	if first < 0 {
		first = len(operation)
	}
	return append(nouns, operation[:first])
}

// own lists the flags of all verbs. A field with such a name gets a flag with the prefix "with-".
var own = map[string]bool{
	"server": true, "context": true, "ca-file": true, "external-url": true, "output": true, "columns": true, "field": true, "for": true,
	"file": true, "help": true, "all": true, "ask": true, "to": true, "owned-by": true,
	"watch": true,
}

// flagName returns the flag of a field: principalId becomes --principal-id.
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

// find returns the verb with these words, or nil.
func (t *table) find(name string) *verb {
	for _, v := range t.verbs {
		if strings.Join(v.words, " ") == name {
			return v
		}
	}
	return nil
}
