package ctl

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
)

func theTable(t *testing.T) *table {
	t.Helper()
	all, err := newTable()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func theCommand(t *testing.T) *cobra.Command {
	t.Helper()
	root, err := Command("ctl")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// TestEveryRouteIsAVerb checks that each route has its own verb, with a flag or argument for each field. It fails if
// the naming rule gives a new route no name, or a name that exists.
func TestEveryRouteIsAVerb(t *testing.T) {
	root, all := theCommand(t), theTable(t)
	if len(all.verbs) != len(routes.All()) {
		t.Fatalf("%d verbs of %d routes", len(all.verbs), len(routes.All()))
	}
	taken := map[string]string{}
	for _, v := range all.verbs {
		name := strings.Join(v.words, " ")
		if other := taken[name]; other != "" {
			t.Errorf("%s and %s are both %q", other, v.route.Name, name)
		}
		taken[name] = v.route.Name
		cmd, rest, err := root.Find(v.words)
		if err != nil || len(rest) > 0 || cmd.Short != v.route.Summary {
			t.Errorf("%s: %q leads to %s, %v %v", v.route.Name, name, cmd.CommandPath(), rest, err)
			continue
		}
		for _, f := range slices.Concat(v.query, v.body) {
			plain, file := cmd.Flags().Lookup(f.flag), cmd.Flags().Lookup(f.flag+"-file")
			if plain == nil && file == nil || f.secret && (plain != nil || file == nil) {
				t.Errorf("%s: %s has the flags %v, %v (secret: %v)", name, f.name, plain, file, f.secret)
			}
		}
		if got := strings.Count(v.route.Path, "{"); len(v.path) != got {
			t.Errorf("%s: %d arguments for %s", name, len(v.path), v.route.Path)
		}
		if v.json != strings.HasPrefix(v.route.MediaType(), "application/json") {
			t.Errorf("%s: JSON %v for %s", name, v.json, v.route.MediaType())
		}
	}
	for _, name := range []string{"login", "logout", "contexts", "completion", "doctor", "support-bundle", "help"} {
		if taken[name] != "" || all.about[name] != "" {
			t.Errorf("%q is a noun of the API, and a command of ctl's own", name)
		}
	}
}

// TestNames lists names that users know, so that a change of the naming rule does not change them by mistake.
func TestNames(t *testing.T) {
	for operation, want := range map[string]string{
		"listRoles": "roles list", "createRole": "roles create", "rotateKey": "keys rotate", "setKeyRotation": "keys rotation set",
		"grantAcl": "keys acl grant", "endSession": "sessions end", "endCurrentSession": "sessions current end", "endSessionsOfPrincipal": "principals sessions end",
		"computeMac": "crypto mac compute", "verifyMac": "crypto mac verify", "computeMacs": "crypto mac batch compute", "verifyMacs": "crypto mac batch verify", "encrypt": "crypto encrypt",
		"approve": "approvals approve", "lookUpPrincipals": "principals lookup", "getOpenApiDocument": "openapi get", "getDecision": "access evaluation get",
		"login": "sessions login", "removeTrustedCa": "trusted-cas remove", "addDelegate": "principals delegates add", "rotateDataKey": "custody rotate",
	} {
		i := slices.IndexFunc(routes.All(), func(r routes.Route) bool { return r.Name == operation })
		if i < 0 {
			t.Errorf("there is no %s any more", operation)
			continue
		}
		if got := strings.Join(name(routes.All()[i].Path, operation), " "); got != want {
			t.Errorf("%s is %q, want %q", operation, got, want)
		}
	}
}

// TestNamesOfData checks that all names in names.go exist.
func TestNamesOfData(t *testing.T) {
	all, root := theTable(t), theCommand(t)
	for _, a := range aliases {
		if all.find(a.verb) == nil {
			t.Errorf("alias %s: there is no %q", a.name, a.verb)
		}
		if cmd, _, err := root.Find(strings.Fields(a.name)); err != nil || !cmd.Runnable() {
			t.Errorf("alias %s: %v", a.name, err)
		}
		if all.find(a.name) != nil {
			t.Errorf("alias %s is a verb", a.name)
		}
	}
	if v := all.find(approvalVerb); v == nil || v.answer.at([]string{"approvalId"}) == nil || v.answer.at([]string{"digest"}) == nil {
		t.Errorf("%s asks nobody", approvalVerb)
	}
	for _, f := range followers {
		v := all.find(f.verb)
		if v == nil {
			t.Fatalf("%s: there is no %q", f.name, f.verb)
		}
		for _, parameter := range []string{f.cursor, f.order, f.limit} {
			if !slices.ContainsFunc(v.query, func(q field) bool { return q.name == parameter }) {
				t.Errorf("%s: %s has no parameter %q", f.name, f.verb, parameter)
			}
		}
		if of, _ := listed(v, nil); of == nil || !of.has(f.mark) {
			t.Errorf("%s: its rows have no %q", f.name, f.mark)
		}
	}
	for name, list := range columns {
		is := all.read(&shape{Ref: "#/components/schemas/" + name}, nothingBelow)
		for _, c := range list {
			if !is.has(c) {
				t.Errorf("columns of %s: there is no %q", name, c)
			}
		}
	}
}

// TestVerdictsOfData checks that the members in verdicts exist.
func TestVerdictsOfData(t *testing.T) {
	for name, say := range verdicts {
		is := theTable(t).read(&shape{Ref: "#/components/schemas/" + name}, nothingBelow)
		rows := is.at([]string{say.list})
		if rows == nil || rows.kind != array || is.at([]string{say.also}) == nil {
			t.Errorf("%s has no list %q, or no %q", name, say.list, say.also)
			continue
		}
		for _, m := range []string{say.name, say.good, say.why, say.again} {
			if !rows.of.has(m) {
				t.Errorf("%s of %s: there is no %q", say.list, name, m)
			}
		}
	}
}

// TestHelp checks that the summary of each command differs from those of its group and its neighbours. It logs flags
// without a description.
func TestHelp(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Short == "" {
			t.Errorf("%s says nothing of itself", cmd.CommandPath())
		}
		said := map[string]string{}
		if len(cmd.Commands()) > 1 && cmd.Annotations[verbOfItsOwn] == "" { // a group with one command may have the same summary as that command
			said[cmd.Short] = cmd.Name()
		}
		for _, c := range cmd.Commands() {
			if other := said[c.Short]; other != "" {
				t.Errorf("%s %s says the same as %s: %s", cmd.CommandPath(), c.Name(), other, c.Short)
			}
			said[c.Short] = c.Name()
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" && !slices.Contains([]string{"name", "path", "filename", "reason", "subject"}, f.Name) {
				t.Logf("%s --%s has no sentence", cmd.CommandPath(), f.Name)
			}
		})
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(theCommand(t))
}

// made returns a response of a schema with the longest allowed texts.
func made(v *value, depth int) jsontext.Value {
	long := strings.Repeat("long ünd \u009bx ", 30)
	switch v.kind {
	case integer, either:
		return jsontext.Value(`9007199254740991`)
	case boolean:
		return jsontext.Value(`false`)
	case instant:
		return jsontext.Value(`"2026-11-24T13:00:00.123456Z"`)
	case array:
		var list []jsontext.Value
		for range 3 {
			list = append(list, made(v.of, depth-1))
		}
		text, _ := json.Marshal(list)
		return text
	case object:
		var all members[jsontext.Value]
		for _, f := range v.fields {
			all.set(f.name, made(&f.value, depth-1))
		}
		text, _ := json.Marshal(all)
		return text
	case free:
		return jsontext.Value(`{"a":[1,2,{"b":null}]}`)
	}
	switch v.name {
	case "HexID":
		long = "00000000000003e9"
	case "DecimalID":
		long = "18446744073709551615"
	case "HiddenLink":
		long = strings.Repeat("A", 88)
	case "Base64ID", "Stamp":
		long = "AAAAAAAAA+k="
	}
	if len(v.enum) > 0 {
		long = slices.MaxFunc(v.enum, func(a, b string) int { return len(a) - len(b) })
	}
	text, _ := json.Marshal(long)
	return text
}

// TestTablesFit checks that no output line is longer than the terminal, and that none has invisible characters.
func TestTablesFit(t *testing.T) {
	for _, v := range theTable(t).verbs {
		if !v.json || v.answer.kind != object {
			continue
		}
		answer := made(&v.answer, nothingBelow)
		for _, wide := range []int{100, 80, 40} {
			var out bytes.Buffer
			p := &printer{options: &options{output: asTable}, out: &out, notes: &out, width: wide}
			if err := p.print(v, answer); err != nil {
				t.Fatalf("%s: %v", v.route.Name, err)
			}
			if out.Len() == 0 {
				t.Errorf("%s shows nothing", v.route.Name)
			}
			for line := range strings.Lines(out.String()) {
				if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > wide {
					t.Errorf("%s at %d: a line of %d: %s", v.route.Name, wide, n, line)
				}
				if strings.ContainsFunc(line, hidden) {
					t.Errorf("%s: %q", v.route.Name, line)
				}
			}
		}
	}
}

// TestForms checks that JSON and YAML keep the order of the response, and have no invisible characters.
func TestForms(t *testing.T) {
	v := theTable(t).find("roles list")
	answer := jsontext.Value("{\"count\":9007199254740991,\"roles\":[{\"id\":\"0000000000000001\",\"name\":\"a \u009b\U000e0001 b\",\"builtIn\":null,\"operations\":[]}],\"detail\":\"1001\"}")
	for form, want := range map[string]string{
		asJSON: "{\n  \"count\": 9007199254740991,\n  \"roles\": [\n    {\n      \"id\": \"0000000000000001\",\n      \"name\": \"a \\u009b\\udb40\\udc01 b\",\n      \"builtIn\": null,\n      \"operations\": []\n    }\n  ],\n  \"detail\": \"1001\"\n}\n",
		asYAML: "count: 9007199254740991\nroles:\n  - id: \"0000000000000001\"\n    name: \"a \\x9B\\U000E0001 b\"\n    builtIn: null\n    operations: []\ndetail: \"1001\"\n",
	} {
		var out bytes.Buffer
		p := &printer{options: &options{output: form}, out: &out, notes: &out, width: 100}
		if err := p.print(v, answer); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("%s: %q\nwant %q", form, out.String(), want)
		}
	}
}

// TestNothingActsOnATerminal checks that each output format escapes or replaces terminal sequences and marks of text
// direction in a name from the server.
func TestNothingActsOnATerminal(t *testing.T) {
	v := theTable(t).find("roles list")
	var name strings.Builder
	for _, r := range []rune{0x1b, 0x07, 0x0d, 0x85, 0x9b, 0xad, 0x061c, 0x200b, 0x200e, 0x2028, 0x202a, 0x202e, 0x2066, 0x2069, 0xfeff, 0xe0001} {
		name.WriteRune('x')
		name.WriteRune(r)
	}
	text, err := json.Marshal(name.String())
	if err != nil {
		t.Fatal(err)
	}
	answer := jsontext.Value(`{"count":1,"roles":[{"id":"0000000000000001","name":` + string(text) + `,"builtIn":true,"operations":[]}],"next":null}`)
	for _, o := range []*options{{output: asTable}, {output: asJSON}, {output: asYAML}, {output: asTable, field: "name"}, {output: asTable, columns: []string{"name"}}} {
		var out bytes.Buffer
		p := &printer{options: o, out: &out, notes: &out, width: 100}
		if err := p.print(v, answer); err != nil {
			t.Fatal(err)
		}
		var w pagedDocument
		if err := p.page(v, &w, answer, true); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(out.String(), hidden) {
			t.Errorf("%+v: %q", o, out.String())
		}
	}
	var out bytes.Buffer
	p := &printer{options: &options{output: asYAML}, out: &out, notes: &out}
	if err := p.print(v, answer); err != nil {
		t.Fatal(err)
	}
	var back struct{ Roles []struct{ Name string } }
	if err := yaml.Unmarshal(out.Bytes(), &back); err != nil || len(back.Roles) != 1 || back.Roles[0].Name != name.String() {
		t.Errorf("YAML reads back as %q, want %q: %v", back, name.String(), err)
	}
}

// TestColors checks that only the header has colours.
func TestColors(t *testing.T) {
	v := theTable(t).find("roles list")
	var out bytes.Buffer
	p := &printer{options: &options{output: asTable}, out: &out, notes: &out, width: 100, color: true}
	if err := p.print(v, jsontext.Value(`{"count":1,"roles":[{"id":"0000000000000001","name":"r","builtIn":true,"operations":[]}]}`)); err != nil {
		t.Fatal(err)
	}
	if want := "\x1b[1mID                NAME  BUILT IN\x1b[0m\n0000000000000001  r     true\n"; out.String() != want {
		t.Errorf("%q\nwant %q", out.String(), want)
	}
}

// TestAges checks that lists show times as ages. The audit log and --columns show the exact time.
func TestAges(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	all := theTable(t)
	keys := func(created, used string) string {
		return `{"count":1,"keys":[{"ttag":"AAAA","createdAt":"` + created + `","lastUsedAt":` + used + `}],"next":null}`
	}
	for _, c := range []struct {
		verb, answer string
		columns      []string
		want         string
	}{
		{"keys list", keys("2026-01-31T12:00:00Z", "null"), nil, "KEY   CREATED\nAAAA  0s\n"},
		{"keys list", keys("2026-01-31T11:58:01Z", `"2026-01-31T11:58:00Z"`), nil, "KEY   CREATED  LAST USED\nAAAA  119s     2m\n"},
		{"keys list", keys("2026-01-29T12:00:01Z", `"2026-01-31T10:00:00+00:00"`), nil, "KEY   CREATED  LAST USED\nAAAA  47h      2h\n"},
		{"keys list", keys("0001-01-01T00:00:00Z", `"2026-01-29T12:00:00Z"`), nil, "KEY   CREATED  LAST USED\nAAAA  106751d  2d\n"},
		{"keys list", keys("2026-01-29T12:00:00Z", "null"), []string{"createdAt"}, "CREATED AT\n2026-01-29T12:00:00Z\n"},
		{"sessions list", `{"count":1,"sessions":[{"id":"00000000000000aa","expiresAt":"2026-01-31T20:00:00Z"}],"next":null}`, nil, "ID                EXPIRES\n00000000000000aa  in 8h\n"},
		{"audit list", `{"entries":[{"seq":1,"time":"2026-01-29T12:00:00Z"}],"next":null}`, nil, "SEQ  TIME\n1    2026-01-29T12:00:00Z\n"},
	} {
		var out bytes.Buffer
		p := &printer{options: &options{output: asTable, columns: c.columns}, out: &out, notes: &out, width: 100, now: now}
		if err := p.print(all.find(c.verb), jsontext.Value(c.answer)); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.want {
			t.Errorf("%s %v: %q, want %q", c.verb, c.columns, out.String(), c.want)
		}
	}
}
