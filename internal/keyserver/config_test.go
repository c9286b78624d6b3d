package keyserver

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// secret is the value of every credential in these tests.
const secret = "hunter2"

// aConfig returns a configuration with a credential in every section and in every part of
// a node.
func aConfig() ConfigNode {
	return ConfigNode{Tag: ConfigRoot, Attrs: map[string]string{"password": secret}, Text: secret, Children: []ConfigNode{
		{Tag: "KeyServer", Attrs: map[string]string{"systemId": "1", "token": secret}, Text: secret},
		{Tag: "Listeners", Attrs: map[string]string{"pin": secret}, Text: secret, Children: []ConfigNode{
			{Tag: "Listener", Attrs: map[string]string{"name": "api", "address": "127.0.0.1:8443", "key": secret}, Text: secret},
			{Tag: "Listener", Attrs: map[string]string{"name": "external", "address": "[::1]:9443", "key": secret}},
		}},
		{Tag: "Database", Attrs: map[string]string{"kind": "postgresql", "url": secret}, Children: []ConfigNode{
			{Tag: "Credentials", Attrs: map[string]string{"url": secret, "name": secret, "kind": secret}, Text: secret, Children: []ConfigNode{
				{Tag: "Listener", Attrs: map[string]string{"name": secret}},
			}},
		}},
		{Tag: "Empty"},
	}}
}

func TestConfigPathGrammar(t *testing.T) {
	cases := map[string]struct {
		reason string
		text   string
		want   ConfigPath // nil: refused
	}{
		"Empty":         {"neither the root nor a wildcard", "", nil},
		"Slash":         {"this is no file system", "/", nil},
		"SlashRoot":     {"likewise", "/ROOT", nil},
		"SlashPath":     {"likewise", "/Listeners", nil},
		"Root":          {"the literal", "ROOT", ConfigPath{}},
		"RootLower":     {"exactly the literal; this is a tag", "root", ConfigPath{{Tag: "root"}}},
		"RootSpace":     {"exactly the literal", "ROOT ", nil},
		"Tag":           {"one step", "Listeners", ConfigPath{{Tag: "Listeners"}}},
		"Steps":         {"two steps", "Listeners.Listener", ConfigPath{{Tag: "Listeners"}, {Tag: "Listener"}}},
		"Identity":      {"a value", "Listeners.Listener[@name=api]", ConfigPath{{Tag: "Listeners"}, {"Listener", "name", "api"}}},
		"Dots":          {"a value may have dots", "A[@b=1.2.3:4].C", ConfigPath{{"A", "b", "1.2.3:4"}, {Tag: "C"}}},
		"EmptyValue":    {"an attribute may be empty", "A[@b=]", ConfigPath{{"A", "b", ""}}},
		"SecondEquals":  {"a value may have an equals sign", "A[@b=c=d]", ConfigPath{{"A", "b", "c=d"}}},
		"LeadingDot":    {"a step has a tag", ".A", nil},
		"TrailingDot":   {"likewise", "A.", nil},
		"TwoDots":       {"likewise", "A..B", nil},
		"Wildcard":      {"there is none", "*", nil},
		"WildcardStep":  {"likewise", "Listeners.*", nil},
		"Descendants":   {"likewise", "Listeners//Listener", nil},
		"Index":         {"nor positions", "Listeners[1]", nil},
		"NoAt":          {"an attribute is named with @", "A[b=c]", nil},
		"NoAttribute":   {"and has a name", "A[@=c]", nil},
		"NoValue":       {"and a value", "A[@b]", nil},
		"Open":          {"and an end", "A[@b=c", nil},
		"TwoPredicates": {"one of them", "A[@b=c][@d=e]", nil},
		"AfterBracket":  {"a dot follows", "A[@b=c]D", nil},
		"Digit":         {"a name starts with a letter", "1A", nil},
		"TooLong":       {"a bound", strings.Repeat("a", MaxConfigPath+1), nil},
		"TooDeep":       {"another", strings.Repeat("a.", maxConfigSteps) + "a", nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, ok := ParseConfigPath(tc.text)
			if ok != (tc.want != nil) || ok && !slices.Equal(got, tc.want) {
				t.Errorf("%s: got %v, %v", tc.reason, got, ok)
			}
		})
	}
}

func TestConfigProjection(t *testing.T) {
	cases := map[string]struct {
		reason     string
		path       string
		nodes      []string // nil if the path selects nothing
		suppressed int
	}{
		"Root": {"everything that is allowed, in document order", "ROOT",
			[]string{"ROOT", "KeyServer", "Listeners", "Listeners.Listener[@name=api]", "Listeners.Listener[@name=external]", "Database"}, 3},
		"Subtree":     {"a section with all below it", "Listeners", []string{"Listeners", "Listeners.Listener[@name=api]", "Listeners.Listener[@name=external]"}, 0},
		"Identity":    {"one of several", "Listeners.Listener[@name=external]", []string{"Listeners.Listener[@name=external]"}, 0},
		"ByAddress":   {"any attribute that may leave", "Listeners.Listener[@address=127.0.0.1:8443]", []string{"Listeners.Listener[@name=api]"}, 0},
		"Several":     {"a tag names all of its siblings", "Listeners.Listener", []string{"Listeners.Listener[@name=api]", "Listeners.Listener[@name=external]"}, 0},
		"Suppressed":  {"a subtree with nothing that may leave is not an empty one", "Database.Credentials", []string{}, 2},
		"BelowIt":     {"an allowed tag below a dropped one is dropped", "Database.Credentials.Listener", []string{}, 1},
		"Absent":      {"no such tag", "Sessions", nil, 0},
		"AbsentBelow": {"no such tag there", "KeyServer.Listener", nil, 0},
		"WrongValue":  {"no such value", "Listeners.Listener[@name=other]", nil, 0},
		"SecretValue": {"the right value of a secret is as good as a wrong one", "Database[@url=" + secret + "]", nil, 0},
		"SecretBelow": {"also of a dropped node", "Database.Credentials[@kind=" + secret + "]", nil, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path, ok := ParseConfigPath(tc.path)
			if !ok {
				t.Fatal("the path is refused")
			}
			p, found := ProjectConfig(aConfig(), path)
			var names []string
			if found {
				names = []string{}
			}
			for _, n := range p.Nodes {
				names = append(names, n.XPath)
			}
			if !reflect.DeepEqual(names, tc.nodes) || p.Suppressed != tc.suppressed {
				t.Errorf("%s: got %q and %d suppressed", tc.reason, names, p.Suppressed)
			}
			if strings.Contains(fmt.Sprintf("%+v", p), secret) {
				t.Errorf("a credential left: %+v", p)
			}
		})
	}
}

func TestConfigDoesNotPrint(t *testing.T) {
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if out := fmt.Sprintf(verb, aConfig()); strings.Contains(out, secret) {
			t.Errorf("%s prints %s", verb, out)
		}
	}
}

// drawConfig draws a tree of allowed and other tags and attributes. Parts that may not be
// sent contain the secret.
func drawConfig(t *rapid.T, depth int) ConfigNode {
	tags := []string{"Vault", "Credentials", "listener", "Databases"}
	for _, row := range ConfigAllowList[1:] {
		tags = append(tags, row.Tag)
	}
	n := ConfigNode{Tag: rapid.SampledFrom(tags).Draw(t, "tag"), Attrs: map[string]string{}, Text: secret}
	row, _ := allowedTag(n.Tag)
	for _, name := range rapid.SliceOfN(rapid.SampledFrom([]string{"name", "kind", "url", "password", "systemId", "scheme", "source"}), 0, 4).Draw(t, "attrs") {
		if slices.Contains(row.Attributes, name) {
			n.Attrs[name] = rapid.StringMatching(`[a-z0-9.:=@\]]{0,6}`).Draw(t, "value")
		} else {
			n.Attrs[name] = secret
		}
	}
	if depth > 0 {
		for range rapid.IntRange(0, 3).Draw(t, "children") {
			n.Children = append(n.Children, drawConfig(t, depth-1))
		}
	}
	return n
}

func count(n ConfigNode) int {
	total := 1
	for _, c := range n.Children {
		total += count(c)
	}
	return total
}

// For any tree and path: the projection contains only listed tags and attributes, every
// node is either projected or counted, and every projected path can be requested.
func TestConfigProjectionProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root := ConfigNode{Tag: ConfigRoot, Text: secret, Attrs: map[string]string{"password": secret}}
		for range rapid.IntRange(0, 4).Draw(t, "sections") {
			root.Children = append(root.Children, drawConfig(t, 3))
		}
		whole, ok := ProjectConfig(root, ConfigPath{})
		if !ok || len(whole.Nodes)+whole.Suppressed != count(root) {
			t.Fatalf("%d nodes and %d suppressed of %d", len(whole.Nodes), whole.Suppressed, count(root))
		}
		for _, n := range whole.Nodes {
			row, ok := allowedTag(n.Tag)
			for name, value := range n.Attrs {
				if !slices.Contains(row.Attributes, name) || value == secret {
					t.Errorf("%s of %s left", name, n.Tag)
				}
			}
			path, parsed := ParseConfigPath(n.XPath)
			part, found := ProjectConfig(root, path)
			if !ok || !parsed || !found {
				t.Errorf("%q cannot be asked for", n.XPath)
			}
			if strings.Contains(fmt.Sprintf("%+v", part), secret) {
				t.Errorf("%q lets a credential out: %+v", n.XPath, part)
			}
		}
	})
}

// No text makes the path parser or the projection panic or disclose a credential.
func TestAnyConfigPathProperty(t *testing.T) {
	pieces := rapid.SampledFrom([]string{"ROOT", "Listeners", "Listener", "Database", "Credentials", ".", "[@", "=", "]", "/", "*", "name", "url", secret, "api", "", "é", "\x00"})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(pieces, 0, 12).Draw(t, "pieces"), "") + rapid.StringN(0, 3, 12).Draw(t, "noise")
		path, ok := ParseConfigPath(text)
		if !ok {
			return
		}
		p, found := ProjectConfig(aConfig(), path)
		if out := fmt.Sprintf("%+v", p); strings.Contains(out, secret) {
			t.Errorf("%q lets a credential out: %s", text, out)
		}
		if strings.HasPrefix(text, "/") || text == "" || strings.Contains(text, secret) && found {
			t.Errorf("%q resolves", text)
		}
	})
}
