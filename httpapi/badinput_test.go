package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/wire"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// bad is one invalid value, and the text that the refusal must contain.
type bad struct {
	what, text, names string
}

// TestBadInput makes one field of one request of one route invalid at a time. It uses the
// table of routes, so it covers new routes.
func TestBadInput(t *testing.T) {
	for _, r := range routes.All() {
		t.Run(r.Method+" "+r.Path, func(t *testing.T) {
			f := newFixture(t)
			good := sampleOf(r)
			if w := f.do(r.Method, good.target(r), good.text()); w.Code != http.StatusOK {
				t.Fatalf("the sample itself is refused: %d %s", w.Code, w.Body)
			}
			reached := len(f.ops.seen()) + len(f.sessions.logins)
			refused := func(what, target, body, names string) {
				t.Helper()
				w := f.do(r.Method, target, body)
				var e schema.Error
				if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || w.Code != http.StatusBadRequest || e.Code != string(fault.BadRequest) {
					t.Errorf("%s: %.200s answered %d %.200s", what, body, w.Code, w.Body)
					return
				}
				if !strings.Contains(e.Detail, names) {
					t.Errorf("%s: detail %q does not name %q", what, e.Detail, names)
				}
			}
			table := wire.Of(r.Request)
			for _, field := range table.Body {
				good := good.having(field.Name)
				for _, b := range spoil(field) {
					refused(field.Name+" "+b.what, good.target(r), good.with(field.Name, b.text).text(), b.names)
				}
				if field.Required {
					refused(field.Name+" absent", good.target(r), good.without(field.Name).text(), field.Name)
				}
				twice := fmt.Sprintf("{%q:%s,%s", field.Name, good.body[field.Name], good.text()[1:])
				refused(field.Name+" twice", good.target(r), twice, field.Name)
			}
			for _, b := range wholeBodies(good) {
				if b.what == "empty" && !table.NeedsBody() {
					continue
				}
				refused(b.what, good.target(r), b.text, b.names)
			}
			for _, field := range table.Query {
				for _, b := range spoilParameter(field) {
					refused("query "+field.Name+" "+b.what, query(good, r, field.Name, b.text), good.text(), field.Name)
				}
				target := good.target(r)
				again := "&" + field.Name + "=" + url.QueryEscape(parameterExample(&field.Value))
				if field.Value.Kind == wire.Array {
					refused("query "+field.Name+" too often", target+strings.Repeat(again, field.Value.MaxLen+1), good.text(), field.Name)
					continue
				}
				refused("query "+field.Name+" twice", target+again, good.text(), field.Name)
			}
			sep := "?"
			if strings.Contains(good.target(r), "?") {
				sep = "&"
			}
			refused("unknown parameter", good.target(r)+sep+"mispelt=1", good.text(), "mispelt")
			refused("malformed query", good.target(r)+sep+"%zz=1", good.text(), "query")
			for _, field := range table.Path {
				spoiled := []string{`"nonsense"`}
				if field.Value.Scalar != nil {
					spoiled = append(spoiled, field.Value.Scalar.Bad...)
				}
				for _, text := range spoiled {
					if field.Value.Kind == wire.Either && text == "9007199254740993" {
						continue // invalid only as a JSON number; a path segment is text
					}
					s := sampleOf(r)
					s.path[field.Name] = url.PathEscape(strings.Trim(text, `"`))
					refused("path "+field.Name, s.target(r), good.text(), field.Name)
				}
			}
			if now := len(f.ops.seen()) + len(f.sessions.logins); now != reached {
				t.Errorf("%d refused requests reached the operations: %v", now-reached, f.ops.seen()[reached:])
			}
			if log := f.log.String(); log != "" {
				t.Errorf("refusals are in the log: %s", log)
			}
		})
	}
}

// wholeBodies returns bodies that are not valid at the top level.
func wholeBodies(good sample) []bad {
	if len(good.order) == 0 {
		return []bad{
			{"a body where none belongs", `{"a":1}`, "body"}, {"an array", `[]`, "body"}, {"null", `null`, "body"},
			{"text", `x`, "body"}, {"two objects", `{}{}`, "body"}, {"an open object", `{`, "body"},
		}
	}
	text := good.text()
	return []bad{
		{"empty", " ", "body"}, {"null", "null", "body"}, {"array", "[" + text + "]", "body"}, {"string", `"x"`, "body"},
		{"number", "1", "body"}, {"not JSON", "x", "body"}, {"cut", text[:len(text)-1], "body"},
		{"trailing object", text + "{}", "body"}, {"trailing text", text + "x", "body"}, {"trailing comma", text[:len(text)-1] + ",}", "body"},
		{"unknown member", `{"mispelt":1,` + text[1:], "mispelt"},
		{"unknown member in other case", `{"` + strings.ToUpper(good.order[0]) + `":1,` + text[1:], strings.ToUpper(good.order[0])},
		{"byte order mark", "\ufeff" + text, "body"}, {"comment", "/**/" + text, "body"},
		{"invalid UTF-8 in a name", "{\"a\xff\":1," + text[1:], ""},
	}
}

// spoil returns invalid values of every kind for a body field.
func spoil(f wire.Field) []bad {
	var out []bad
	add := func(what, text string) { out = append(out, bad{what, text, f.Name}) }
	if !f.Nullable {
		add("null", "null")
	}
	spoilValue(&f.Value, add)
	return out
}

func spoilValue(v *wire.Value, add func(what, text string)) {
	wrongTypes(v, add)
	if v.Scalar != nil {
		for _, text := range v.Scalar.Bad {
			add("misspelt", text)
		}
	}
	switch v.Kind {
	case wire.Text:
		spoilText(v, add)
	case wire.Integer:
		spoilInteger(v, add)
	case wire.Time:
		add("not a time", `"yesterday"`)
	case wire.Array:
		spoilArray(v, add)
	case wire.Object:
		for _, f := range v.Members.Body {
			spoilValue(&f.Value, func(what, text string) {
				good, spoiled := fmt.Sprintf("%q:%s", f.Name, f.Value.Example()), fmt.Sprintf("%q:%s", f.Name, text)
				if !strings.Contains(v.Example(), good) { // the example leaves the member out
					add(f.Name+" "+what, "{"+spoiled+","+v.Example()[1:])
					return
				}
				add(f.Name+" "+what, strings.Replace(v.Example(), good, spoiled, 1))
			})
		}
	}
}

func wrongTypes(v *wire.Value, add func(what, text string)) {
	for name, text := range map[string]string{
		"a boolean": "true", "an object": `{"a":1}`, "a number": "1", "a string": `"x y"`, "an array": `[[]]`, "a fraction": "1.5",
		"a huge number": "1e400", "not JSON": "nope", "a bare word": "NaN",
	} {
		fits := map[wire.Kind]string{wire.Text: "a string", wire.Time: "a string", wire.Boolean: "a boolean", wire.Integer: "a number", wire.Any: "an object"}[v.Kind]
		if name == fits || (v.Kind == wire.Either && name == "a number") || (name == "an array" && apart(v)) {
			continue
		}
		add(name, text)
	}
}

func spoilText(v *wire.Value, add func(what, text string)) {
	if len(v.Enum) > 0 {
		add("not one of the values", `"mispelt"`)
		add("in other case", `"`+strings.ToLower(v.Enum[0])+`x"`)
	}
	binary := v.Scalar != nil && v.Scalar.Binary
	if v.Min != nil && *v.Min > 0 || (v.Scalar != nil && !v.Scalar.Secret && !binary) {
		add("empty", `""`)
	}
	if v.Min != nil && *v.Min > 1 && !binary {
		add("too short", `"`+strings.Repeat("a", int(*v.Min)-1)+`"`)
	}
	if v.Max != nil && binary && *v.Max < 1<<20 {
		add("too long", `"`+strings.Repeat("AAAA", int(*v.Max)/3+1)+`"`)
	}
	if v.Max != nil && !binary {
		add("too long", `"`+strings.Repeat("ä", int(*v.Max)+1)+`"`)
	}
	add("invalid UTF-8", "\"a\xff\"")
	add("a lone surrogate", `"\ud800"`)
	if v.Scalar == nil && len(v.Enum) == 0 {
		add("a NUL", `"a\u0000b"`)
		add("a line break", `"a\nb"`)
	}
}

func spoilInteger(v *wire.Value, add func(what, text string)) {
	for _, text := range []string{"1.0", "1e2", `"1"`, "-0", "99999999999999999999"} {
		add("spelt "+text, text)
	}
	if v.Min != nil {
		add("too small", strconv.FormatInt(*v.Min-1, 10))
	}
	if v.Max != nil {
		add("too large", strconv.FormatInt(*v.Max+1, 10))
	}
}

func spoilArray(v *wire.Value, add func(what, text string)) {
	if !apart(v) {
		add("an element null", "[null]")
		spoilValue(v.Elem, func(what, text string) { add("an element "+what, "["+v.Elem.Example()+","+text+"]") })
	}
	if v.MaxLen >= 0 {
		add("too many", "["+strings.Repeat(v.Elem.Example()+",", v.MaxLen)+v.Elem.Example()+"]")
	}
}

// apart reports whether each element of an array is refused separately.
func apart(v *wire.Value) bool {
	if v.Kind != wire.Array {
		return false
	}
	_, is := reflect.New(v.Elem.Type).Interface().(schema.SeparateElement)
	return is
}

func spoilParameter(f wire.Field) []bad {
	var out []bad
	add := func(what, text string) { out = append(out, bad{what, text, f.Name}) }
	if !f.Blank {
		add("empty", "")
	}
	v := &f.Value
	if v.Kind == wire.Array {
		v = v.Elem
	}
	switch {
	case v.Scalar != nil:
		add("misspelt", "non sense")
		add("negative", "-1")
	case v.Kind == wire.Integer:
		for _, text := range []string{"x", "1.0", "1e2", "+1", " 1", "01", "99999999999999999999"} {
			add("spelt "+text, text)
		}
		add("too small", strconv.FormatInt(*v.Min-1, 10))
		add("too large", strconv.FormatInt(*v.Max+1, 10))
	case v.Kind == wire.Time:
		add("not a time", "yesterday")
		add("a date", "2026-01-31")
	case v.Max != nil:
		add("too long", strings.Repeat("a", int(*v.Max)+1))
		add("a line break", "a\nb")
		add("not UTF-8", "a\xff")
	}
	return out
}

func query(good sample, r routes.Route, name, value string) string {
	q := map[string]string{}
	for n, v := range good.query {
		q[n] = v
	}
	q[name] = url.QueryEscape(value)
	good.query = q
	return good.target(r)
}
