package httpapi

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/openapi"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

type object = map[string]any

// published is the OpenAPI document as a JSON parser reads it.
type published struct {
	testing.TB
	text []byte
	root object
}

func readDocument(t *testing.T) published {
	t.Helper()
	text, err := routes.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	d := published{t, text, object{}}
	if err := json.Unmarshal(text, &d.root); err != nil {
		t.Fatal(err)
	}
	return d
}

// resolve returns the value, or the target if the value is a reference.
func (d published) resolve(v any) object {
	d.Helper()
	o, ok := v.(object)
	if !ok {
		d.Fatalf("%v is no object", v)
	}
	ref, ok := o["$ref"].(string)
	if !ok {
		return o
	}
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		d.Fatalf("%s is not in this document", ref)
	}
	at := any(d.root)
	for part := range strings.SplitSeq(path, "/") {
		if at, ok = at.(object)[part]; !ok {
			d.Fatalf("%s resolves to nothing", ref)
		}
	}
	return d.resolve(at)
}

func (d published) operation(r routes.Route) object {
	d.Helper()
	return d.resolve(d.root["paths"].(object)[r.Path].(object)[strings.ToLower(r.Method)])
}

// references calls f with every reference below a value.
func references(v any, f func(ref string)) {
	switch v := v.(type) {
	case object:
		if ref, ok := v["$ref"].(string); ok {
			f(ref)
		}
		for _, inner := range v {
			references(inner, f)
		}
	case []any:
		for _, inner := range v {
			references(inner, f)
		}
	}
}

// Every reference has a target, and every component is used.
func TestComponentsAreUsed(t *testing.T) {
	d := readDocument(t)
	used := map[string]bool{}
	var follow func(ref string)
	follow = func(ref string) {
		if used[ref] {
			return
		}
		used[ref] = true
		references(d.resolve(object{"$ref": ref}), follow)
	}
	references(d.root["paths"], follow)
	for _, r := range routes.All() {
		for _, requirement := range d.operation(r)["security"].([]any) {
			for scheme := range requirement.(object) {
				used["#/components/securitySchemes/"+scheme] = true
			}
		}
	}
	for kind, components := range d.root["components"].(object) {
		for name := range components.(object) {
			ref := "#/components/" + kind + "/" + name
			if !used[ref] {
				t.Errorf("nothing refers to %s", ref)
			}
			delete(used, ref)
		}
	}
	for ref := range used {
		t.Errorf("%s is no component", ref)
	}
}

// Generators of clients give a type to each enumeration and to each alternative. Types without a name in the document
// get names that clash.
func TestTypesHaveNames(t *testing.T) {
	d := readDocument(t)
	var enumerations, alternatives int
	var check func(where string, v any)
	check = func(where string, v any) {
		switch v := v.(type) {
		case object:
			if enum, _ := v["enum"].([]any); len(enum) > 1 {
				enumerations++
				if name, ok := strings.CutPrefix(where, "/components/schemas/"); !ok || strings.Contains(name, "/") {
					t.Errorf("%s: the enumeration %v is no component", where, enum)
				}
			}
			for _, choice := range []string{"oneOf", "anyOf"} {
				list, _ := v[choice].([]any)
				for _, one := range list {
					alternatives++
					if o := one.(object); o["$ref"] == nil && o["type"] != "null" {
						t.Errorf("%s: the alternative %v is no component", where, o)
					}
				}
			}
			for name, inner := range v {
				check(where+"/"+name, inner)
			}
		case []any:
			for _, inner := range v {
				check(where, inner)
			}
		}
	}
	check("", d.root)
	if enumerations < 30 || alternatives < 100 {
		t.Errorf("only %d enumerations and %d alternatives", enumerations, alternatives)
	}
}

// Generators ignore case and punctuation in names, and some put all kinds of components into one package.
func TestNamesOfComponentsDiffer(t *testing.T) {
	taken := map[string]string{}
	for kind, components := range readDocument(t).root["components"].(object) {
		for name := range components.(object) {
			normal := strings.ToLower(regexp.MustCompile(`[^A-Za-z0-9]`).ReplaceAllString(name, ""))
			if other := taken[normal]; other != "" {
				t.Errorf("%s/%s has the name of %s", kind, name, other)
			}
			taken[normal] = kind + "/" + name
			if regexp.MustCompile(`[0-9]$`).MatchString(name) && !strings.HasPrefix(name, "SHA256") && name != "Base64" {
				t.Errorf("%s/%s has a number instead of a name", kind, name)
			}
		}
	}
}

// The document contains shared responses and parameters once.
func TestNothingIsRepeated(t *testing.T) {
	d := readDocument(t)
	seen := map[string]string{}
	once := func(what string, v any) {
		o := v.(object)
		if o["$ref"] != nil {
			return
		}
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if other := seen[string(text)]; other != "" {
			t.Errorf("%s repeats %s", what, other)
		}
		seen[string(text)] = what
	}
	for _, r := range routes.All() {
		o := d.operation(r)
		if list, ok := o["parameters"].([]any); ok {
			for _, p := range list {
				once("a parameter of "+r.Name, p)
			}
		}
		for status, response := range o["responses"].(object) {
			if status != "200" && status != "409" { // the type of these responses is specific to the route
				once(status+" of "+r.Name, response)
			}
		}
	}
}

// codesIn lists the codes that a schema allows in a failure.
func (d published) codesIn(v any) []string {
	s := d.resolve(v)
	for _, choice := range []string{"oneOf", "allOf"} {
		var codes []string
		list, _ := s[choice].([]any)
		for _, one := range list {
			codes = append(codes, d.codesIn(one)...)
		}
		if list != nil {
			return codes
		}
	}
	properties, _ := s["properties"].(object)
	var code object
	if properties["code"] != nil {
		code = d.resolve(properties["code"])
	}
	var codes []string
	enum, _ := code["enum"].([]any)
	for _, c := range enum {
		codes = append(codes, c.(string))
	}
	return codes
}

// Each operation lists, by status, exactly the codes that its route can return.
func TestCodesOfEachOperation(t *testing.T) {
	d := readDocument(t)
	for _, r := range routes.All() {
		want := map[string][]string{}
		for _, c := range r.Codes() {
			status := httpStatus(c)
			want[status] = append(want[status], string(c))
		}
		got := map[string][]string{}
		for status, v := range d.operation(r)["responses"].(object) {
			if status == "200" {
				continue
			}
			media := d.resolve(v)["content"].(object)["application/json"].(object)
			got[status] = slices.Sorted(slices.Values(d.codesIn(media["schema"])))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-route +document):\n%s", r.Name, diff)
		}
	}
}

func httpStatus(c fault.Code) string {
	text, err := json.Marshal(statuses[c])
	if err != nil {
		panic(err)
	}
	return string(text)
}

// verbs are the verbs with which names of operations begin.
var verbs = []string{
	"activate", "add", "approve", "ask", "authorize", "compute", "create", "decrypt", "delete", "destroy", "disable", "enable", "encrypt", "end",
	"enroll", "execute", "export", "find", "get", "grant", "import", "issue", "list", "login", "lookUp", "mint", "prepare", "reject", "remove",
	"release", "rename", "renew", "reset", "restore", "retire", "revoke", "rotate", "set", "update", "verify", "withdraw",
}

// An operationId is a verb and a noun in camelCase. Generators derive names
// of functions from it.
func TestOperationNames(t *testing.T) {
	d := readDocument(t)
	shape := regexp.MustCompile(`^[a-z]+(?:[A-Z][a-z]+)*$`)
	taken := map[string]bool{}
	for _, r := range routes.All() {
		id, _ := d.operation(r)["operationId"].(string)
		if id != r.Name || taken[id] {
			t.Errorf("%s %s has the operationId %q, which is not its name %q or is taken", r.Method, r.Path, id, r.Name)
		}
		taken[id] = true
		if !shape.MatchString(id) {
			t.Errorf("%s is not camelCase with acronyms as words", id)
		}
		if !slices.ContainsFunc(verbs, func(verb string) bool {
			noun, ok := strings.CutPrefix(id, verb)
			return ok && (noun == "" || noun[0] < 'a')
		}) {
			t.Errorf("%s does not begin with a verb that others begin with", id)
		}
	}
}

func TestTags(t *testing.T) {
	d := readDocument(t)
	described := map[string]bool{}
	for _, v := range d.root["tags"].([]any) {
		tag := v.(object)
		if name := tag["name"].(string); tag["description"] == "" || described[name] {
			t.Errorf("the tag %s has no description or stands there twice", name)
		} else {
			described[name] = true
		}
	}
	used := map[string]bool{}
	for _, r := range routes.All() {
		tags := d.operation(r)["tags"].([]any)
		if len(tags) != 1 || !described[tags[0].(string)] {
			t.Errorf("%s has the tags %v, want one that is described", r.Name, tags)
			continue
		}
		used[tags[0].(string)] = true
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(described)), slices.Sorted(maps.Keys(used))); diff != "" {
		t.Errorf("tags (-described +used):\n%s", diff)
	}
}

// A request with a session id may have a proof. It uses the scheme bearerSession or boundSession.
func TestProofInDocument(t *testing.T) {
	d := readDocument(t)
	session, proof, none := object{"bearerSession": []any{}}, object{"boundSession": []any{}}, object{}
	for _, r := range routes.All() {
		want, takes := []any{}, false
		switch {
		case r.Session:
			want, takes = []any{session, proof}, true
		case r.Name == "login": // a login may be made from a session, and be bound to a key
			want, takes = []any{none, session, proof}, true
		}
		o := d.operation(r)
		if diff := cmp.Diff(want, o["security"]); diff != "" {
			t.Errorf("%s: security (-want +got):\n%s", r.Name, diff)
		}
		list, _ := o["parameters"].([]any)
		if got := slices.ContainsFunc(list, func(p any) bool {
			parameter := d.resolve(p)
			return parameter["name"] == "DPoP" && parameter["in"] == "header"
		}); got != takes {
			t.Errorf("%s has the parameter DPoP: %t, want %t", r.Name, got, takes)
		}
	}
	schemes := d.root["components"].(object)["securitySchemes"].(object)
	for name, want := range map[string]string{"bearerSession": "bearer", "boundSession": "DPoP"} {
		if scheme := schemes[name].(object); scheme["type"] != "http" || scheme["scheme"] != want {
			t.Errorf("the scheme %s is %v", name, scheme)
		}
	}
}

// The id of a principal is a string everywhere, so that no client has
// to handle two types.
func TestPrincipalIDHasOneType(t *testing.T) {
	d := readDocument(t)
	found := 0
	check := func(where string, v any) {
		found++
		s := d.resolve(v)
		if choice, ok := s["oneOf"].([]any); ok && len(choice) == 2 && choice[1].(object)["type"] == "null" {
			s = d.resolve(choice[0])
		}
		if s["type"] != "string" {
			t.Errorf("principalId of %s is %v", where, s)
		}
	}
	for name, v := range d.root["components"].(object)["schemas"].(object) {
		properties, _ := v.(object)["properties"].(object)
		if p, ok := properties["principalId"]; ok {
			check(name, p)
		}
	}
	for _, r := range routes.All() {
		list, _ := d.operation(r)["parameters"].([]any)
		for _, v := range list {
			if p := d.resolve(v); p["name"] == "principalId" {
				check(r.Name, p["schema"])
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d fields are called principalId", found)
	}
}

// The document is readable: it is short and has spaces. No line is longer than a screen if it can be broken.
func TestDocumentIsSmall(t *testing.T) {
	const linesOfOperation = 82
	d, mostLines := readDocument(t), linesOfOperation*len(routes.All())
	lines := bytes.SplitAfter(d.text, []byte("\n"))
	if last := lines[len(lines)-1]; len(last) > 0 {
		t.Error("the last line does not end")
	}
	if len(lines) > mostLines {
		t.Errorf("%d lines, want at most %d: is something inlined that many operations share?", len(lines), mostLines)
	}
	for i, line := range lines {
		if bytes.ContainsRune(line, '\t') {
			t.Errorf("line %d has a tab", i+1)
		}
		if len(line) > openapi.LineWidth+2 && bytes.Count(line, []byte(`": `)) > 1 {
			t.Errorf("line %d has %d bytes and could be broken", i+1, len(line))
		}
	}
}

// recorder stores each written slice without copying it.
type recorder struct {
	http.ResponseWriter
	written [][]byte
}

func (r *recorder) Write(p []byte) (int, error) {
	r.written = append(r.written, p)
	return len(p), nil
}

// All responses share the same bytes in memory.
func TestDocumentIsNotCopied(t *testing.T) {
	text, err := routes.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t)
	for range 2 {
		w := &recorder{ResponseWriter: httptest.NewRecorder()}
		f.api.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/openapi.json", nil))
		if len(w.written) != 1 || len(w.written[0]) != len(text) || &w.written[0][0] != &text[0] {
			t.Fatalf("%d writes, and not of the document's own bytes", len(w.written))
		}
	}
}
