package manifest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

// TestReadRefuses checks that errors give the place in the file and do not quote the file.
func TestReadRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, says string }{
		"Text":       {"planted", "document 1 (line 1): is not a manifest"},
		"Number":     {"12", "is not a manifest"},
		"Sequence":   {"- a", "is not a manifest"},
		"NoKind":     {"apiVersion: v1", "kind is missing"},
		"NoVersion":  {"kind: Role", "apiVersion is missing"},
		"KindNumber": {"apiVersion: v1\nkind: 7", "kind is missing or not text"},
		"Syntax":     {"a: b\n---\n\na: [planted", "document 2 (line 3)"},
		"Twice":      {"a: 1\n---\nb: 1\nc: 1\nb: 2", "document 2 (line 3): is not YAML that can be applied: line 5: a key occurs twice"},
		"TwiceJSON":  {`{"kind": "a", "kind": "b"}`, "a key occurs twice"},
		"ListOfText": {"apiVersion: v1\nkind: List\nitems: [planted]", "items[0] is not a manifest"},
		"ListInside": {"apiVersion: v1\nkind: List\nitems: [{kind: a}]", "items[0] is not a manifest: apiVersion"},
		"Tab":        {"a:\n\tb: planted", "line 2"},
		"Alias":      {"a: *planted", "an alias (*) has no anchor (&)"},
		"Anchor":     {"a: &planted [*planted]", "an anchor (&) contains itself"},
		"NullKey":    {"null: planted", "a key is neither text nor a number"},
		"Tag":        {"a: !!int planted", "a value does not match its tag (!!)"},
		"Base64":     {"a: !!binary planted-", "a value does not match its tag (!!)"},
		"Template":   {"a: {{planted}}", "a key is a list or a mapping; put {{ }} in quotes"},
		"Merge":      {"a: {<<: planted}", "the value of << is not a mapping"},
		"KeyTwice":   {"planted: 1\nplanted: 2", "line 2: a key occurs twice"},
		"TwiceTwice": {"planted: 1\nplanted: 2\nb: 1\nb: 2", "line 2: a key occurs twice; line 4: a key occurs twice"},
		"LineInKey":  {"\"\\nline 7: planted\": 1\n\"\\nline 7: planted\": 2", "line 2: a key occurs twice"},
		"TagHandle":  {"a: !planted!b c", "found undefined tag handle"},
		"Infinite":   {"a: .inf", "a number is not finite"},
		"Unknown":    {"%PLANTED planted\n", "it cannot be read"},
		"TwiceDeep":  {`{"apiVersion": "v1", "kind": "a", "spec": {"a": 1, "a": 2}}`, "a key occurs twice"},
		"UTF16LE":    {"\xff\xfea\x00:\x00", "standard input is UTF-16 text"},
		"UTF16BE":    {"\xfe\xff\x00a", "standard input is UTF-16 text"},
		"UTF16NoBOM": {"a\x00:\x00", "standard input is UTF-16 text"},
		"Binary":     {"a: \x80planted", "standard input is not UTF-8 text"},
		"Deep":       {"a: " + strings.Repeat("[", 20_000) + "planted", "it cannot be read"},
		"SecondEnd":  {object("a") + "...\n" + object("planted"), "document 1 (line 1): is not YAML"},
		"SecondNull": {"# nothing\nnull\n...\n" + object("planted"), "document 1 (line 1): is not YAML"},
		"OldMac":     {strings.ReplaceAll(object("a")+"---\n"+object("planted"), "\n", "\r"), "has a second document"},
		"JSONAndBad": {objectJSON("a") + "\n garbage: [[[", "document 1 (line 1): is not YAML"},
		"JSONTrail":  {objectJSON("a") + "\n" + objectJSON("b") + "\nplanted", "document 1 (line 1): is not YAML"},
		"JSONThird":  {objectJSON("a") + "\n" + objectJSON("b") + "\n{}", "document 3 (line 3): is not a manifest"},
		"FlowAndBad": {"{apiVersion: v1, kind: A}\n{apiVersion: v1, kind: B}", "document 1 (line 1): is not YAML"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(c.text, "a: 1\n---", "apiVersion: v1\nkind: A\n---", 1)
			if text != c.text { // the first document is two lines now
				c.says = strings.NewReplacer("line 3", "line 4", "line 5", "line 6").Replace(c.says)
			}
			text = strings.Replace(text, "a: b\n---", "{apiVersion: v1, kind: A}\n---", 1)
			found, err := Read(t.Context(), []string{Stdin}, strings.NewReader(text))
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "standard input") {
				t.Errorf("got %v %v, want %q", found, err, c.says)
			}
			if err != nil && strings.Contains(err.Error(), "planted") {
				t.Errorf("the sentence quotes the file: %v", err)
			}
		})
	}
}

func object(name string) string { return "apiVersion: v1\nkind: A\nmetadata: {name: " + name + "}\n" }

func objectJSON(name string) string {
	return `{"apiVersion": "v1", "kind": "A", "metadata": {"name": "` + name + `"}}`
}

// TestReadDocuments checks that a file gives the same objects as in kubectl.
func TestReadDocuments(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"None":      {"", ""},
		"Comments":  {"# nothing\n---\n# here\n---\n", ""},
		"One":       {object("a"), "a@1"},
		"Marked":    {"---\n" + object("a"), "a@2"},
		"Two":       {object("a") + "---\n" + object("b"), "a@1 b@5"},
		"NoNewline": {object("a") + "--- # comment\n" + strings.TrimSuffix(object("b"), "\n"), "a@1 b@5"},
		"Windows":   {strings.ReplaceAll(object("a")+"---\n"+object("b"), "\n", "\r\n"), "a@1 b@5"},
		"SameLine":  {"--- {apiVersion: v1, kind: A, metadata: {name: a}}\n", "a@1"},
		"Dashes":    {object("a") + "data:\n  x: |\n    ---\n    -----BEGIN\n", "a@1"},
		"List":      {"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: A, metadata: {name: a}}\n- {apiVersion: v1, kind: A, metadata: {name: b}}\n", "a@1 b@1"},
		"JSON":      {objectJSON("a"), "a@1"},
		"JSONs":     {"\n" + objectJSON("a") + "\n\n" + objectJSON("b") + objectJSON("c") + "\n", "a@2 b@4 c@4"},
		"JSONMarks": {objectJSON("a") + "\n---\n" + objectJSON("b") + "\n" + objectJSON("c"), "a@1 b@3 c@4"},
		"JSONNote":  {objectJSON("a") + " # an object\n", "a@1"},
		"JSONSlash": {objectJSON(`a\/b`), "a/b@1"},
		"JSONPair":  {objectJSON(`\ud83d\ude00`), "\U0001F600@1"},
		"Flow":      {"{apiVersion: v1, kind: A, metadata: {name: a}}\n", "a@1"},
		"End":       {object("a") + "...\n---\n" + object("b") + "...\n", "a@1 b@6"},
		"Mark":      {"\xef\xbb\xbf" + object("a"), "a@1"},
		"MarkJSON":  {"\xef\xbb\xbf" + objectJSON("a"), "a@1"},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := Read(t.Context(), []string{Stdin}, strings.NewReader(c.text))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range found {
				got = append(got, fmt.Sprintf("%s@%d", m.Object.GetName(), m.Source.Line))
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %v, want %s", got, c.want)
			}
		})
	}
}

// TestReadLinks checks that symbolic links are followed, except links to directories below the given directory.
func TestReadLinks(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"real/deep", "other"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for file, content := range map[string]string{
		"real/a.yaml": object("a"), "real/deep/b.json": objectJSON("b"), "real/.hidden.yaml": "[", "real/notes.txt": "[",
		"other/c.yml": object("c"),
	} {
		if err := os.WriteFile(filepath.Join(root, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	links := func(targets map[string]string) {
		for name, target := range targets {
			if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	read := func(name string) (string, error) {
		found, err := Read(t.Context(), []string{filepath.Join(root, name)}, nil)
		var got []string
		for _, m := range found {
			got = append(got, strings.TrimPrefix(m.Source.File, root+"/"))
		}
		return strings.Join(got, " "), err
	}
	links(map[string]string{"link": "real", "link.yaml": "real/a.yaml", "real/deep/c.yaml": "../../other/c.yml", "real/deep/circle": "..", "real/deep/.data": "nowhere"})
	for name, want := range map[string]string{
		"real":      "real/a.yaml real/deep/b.json real/deep/c.yaml",
		"link":      "link/a.yaml link/deep/b.json link/deep/c.yaml",
		"link/":     "link/a.yaml link/deep/b.json link/deep/c.yaml",
		"link.yaml": "link.yaml",
	} {
		if got, err := read(name); err != nil || got != want {
			t.Errorf("%s: got %s and %v, want %s", name, got, err, want)
		}
	}
	links(map[string]string{"other/d.yaml": "../real"})
	if got, err := read("other"); err == nil || !strings.Contains(err.Error(), "other/d.yaml is a link to a directory") {
		t.Errorf("got %s and %v", got, err)
	}
	links(map[string]string{"real/d.yaml": "nowhere"})
	if got, err := read("real"); err == nil || !strings.Contains(err.Error(), "real/d.yaml: no such file") {
		t.Errorf("got %s and %v", got, err)
	}
}

// TestReadIsInterrupted checks that a read of a pipe without a writer ends when its context ends.
func TestReadIsInterrupted(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	open, writer := io.Pipe()
	t.Cleanup(func() { _ = writer.Close() })
	for path, says := range map[string]string{Stdin: "reading standard input was interrupted", pipe: "reading " + pipe + " was interrupted"} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := Read(ctx, []string{path}, open)
			ended <- err
		}()
		cancel()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), says) {
				t.Errorf("got %v, want %q", err, says)
			}
		case <-time.After(time.Minute):
			t.Fatalf("reading %s goes on", path)
		}
	}
	// In a directory, a pipe is not a manifest.
	_, err := Read(t.Context(), []string{filepath.Dir(pipe)}, nil)
	if err == nil || !strings.Contains(err.Error(), "pipe.yaml is not a regular file") {
		t.Errorf("got %v", err)
	}
	// After a cancellation no more documents are parsed.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := parse(ctx, nil, Stdin, []byte(object("a"))); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestReadBounds checks the limits for the file size and for the number of documents.
func TestReadBounds(t *testing.T) {
	item := `{"apiVersion":"v1","kind":"A"}`
	most := `{"apiVersion":"v1","kind":"List","items":[` + strings.Repeat(item+",", maxManifests-2) + item + "]}\n" + item + "\n"
	if found, err := Read(t.Context(), []string{Stdin}, strings.NewReader(most)); err != nil || len(found) != maxManifests {
		t.Errorf("got %d manifests and %v", len(found), err)
	}
	_, err := Read(t.Context(), []string{Stdin}, strings.NewReader(most+item+"\n---\n{not read"))
	if want := "document 3 (line 3): more than 100000 manifests"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	longest := strings.Repeat("\xff", maxFile) // not UTF-8; the size is checked first
	if _, err := Read(t.Context(), []string{Stdin}, strings.NewReader(longest)); err == nil || !strings.Contains(err.Error(), "is not UTF-8 text") {
		t.Errorf("got %v", err)
	}
	if _, err := Read(t.Context(), []string{Stdin}, strings.NewReader(longest+" ")); err == nil || !strings.Contains(err.Error(), "is longer than 67108864 bytes") {
		t.Errorf("got %v", err)
	}
}

// TestReadIsLinear checks that the time to parse a file grows linearly with the number of documents.
func TestReadIsLinear(t *testing.T) {
	document := object("a") + strings.Repeat("\n", 50) + "---\n"
	perDocument := func(n int) uint64 {
		text := strings.Repeat(document, n)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if found, err := Read(t.Context(), []string{Stdin}, strings.NewReader(text)); err != nil || len(found) != n {
			t.Fatal(len(found), err)
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / uint64(n)
	}
	if few, many := perDocument(200), perDocument(2000); many > 2*few {
		t.Errorf("a document of 200 takes %d bytes, one of 2000 takes %d", few, many)
	}
}

// spec is the kind and the spec of a manifest.
type spec struct{ kind, spec string }

const onePEM = "-----BEGIN CERTIFICATE-----\\nAAAA\\n-----END CERTIFICATE-----\\n"

// invalid has manifests that admission rejects, and part of the error.
var invalid = map[string]struct {
	spec
	says string
}{
	"UnknownField":   {spec{"Role", "{roleName: a, operations: [], operation: []}"}, "spec.operation: no such field"},
	"UnknownDeep":    {spec{"ACLTemplate", "{templateName: a, members: [{principal: password/a, rights: [READ], right: x}]}"}, "spec.members[0].right: no such field"},
	"Missing":        {spec{"ACLTemplate", "{members: []}"}, "spec.templateName: is missing"},
	"Type":           {spec{"Role", "{roleName: 7, operations: []}"}, "spec.roleName"},
	"Enum":           {spec{"Role", "{roleName: a, operations: [], deletionPolicy: Orphan}"}, "spec.deletionPolicy: is not one of the supported values"},
	"Length":         {spec{"Role", "{roleName: '', operations: []}"}, "spec.roleName"},
	"SetTwice":       {spec{"Role", "{roleName: a, operations: [b, b]}"}, "spec.operations[1]: occurs twice"},
	"MapTwice":       {spec{"ACLTemplate", "{templateName: a, members: [{principal: password/a, rights: [READ]}, {principal: password/a, rights: [WRITE]}]}"}, "spec.members[1]: occurs twice"},
	"Null":           {spec{"ACLTemplate", "{templateName: null}"}, "spec.templateName"},
	"Rule":           {spec{"Role", "{operations: []}"}, "give roleName, or roleId"},
	"RuleOfField":    {spec{"Role", "{roleName: ' a', operations: []}"}, "must not begin or end with a space"},
	"RuleOfItem":     {spec{"Role", "{roleName: a, operations: [' b']}"}, "must not begin or end with a space"},
	"RuleOfDefault":  {spec{"Role", "{roleName: a, operations: [], resyncInterval: 1s}"}, "must be a duration from 5s to 24h"},
	"RuleOfFormat":   {spec{"Role", "{roleName: a, operations: [], keyServerRef: {name: 'A b'}}"}, "must be the name of a KeyServer"},
	"OneOf":          {spec{"TrustedCA", "{certificate: {}}"}, "give exactly one of"},
	"PrivateKey":     {spec{"TrustedCA", "{certificate: {inline: \"" + onePEM + "-----BEGIN PRIVATE KEY-----\"}}"}, "must not hold a private key"},
	"URL":            {spec{"KeyServer", "{url: 'http://keys.example', credentials: {administrator: {secretRef: {namespace: a, name: b}}}}"}, "must be an https URL"},
	"Time":           {spec{"ACLTemplate", "{templateName: a, members: [{principal: password/a, rights: [READ], startTime: '2027-01-01T00:00:00Z', endTime: '2026-01-01T00:00:00Z'}]}"}, "endTime must be after startTime"},
	"TimeOfNoFormat": {spec{"ACLTemplate", "{templateName: a, members: [{principal: password/a, rights: [READ], startTime: tomorrow}]}"}, "startTime"},
}

var valid = map[string]spec{
	"Role":           {"Role", "{roleName: a, operations: []}"},
	"TrustedCA":      {"TrustedCA", "{certificate: {inline: \"" + onePEM + "\"}, rotation: {overlap: 0s}}"},
	"TrustedServer":  {"TrustedServer", "{friendlyName: a, trustBlob: {inline: \"7\\tpeer.example\\t9443\\tAAAA\"}}"},
	"PrincipalTrust": {"PrincipalTrust", "{systemId: 7, principal: {type: group, name: a}, flag: expose}"},
	"ACLTemplate":    {"ACLTemplate", "{templateName: a, members: [{principal: password/a, rights: [READ], endTime: '2026-01-01T00:00:00Z'}], directories: [/a]}"},
	"KeyServer":      {"KeyServer", "{url: 'https://keys.example', credentials: {administrator: {secretRef: {namespace: a, name: b}}}}"},
}

func (s spec) object(t testing.TB, name string) *unstructured.Unstructured {
	t.Helper()
	metadata := "{namespace: default, name: " + name + "}"
	if s.kind == "KeyServer" {
		metadata = "{name: " + name + "}"
	}
	found, err := Read(t.Context(), []string{Stdin}, strings.NewReader("apiVersion: trust.keyserver.dev/v1beta1\nkind: "+s.kind+"\nmetadata: "+metadata+"\nspec: "+s.spec))
	if err != nil {
		t.Fatal(err)
	}
	return found[0].Object
}

// check completes and validates an object, as after reading a manifest.
func check(t testing.TB, s *Schemas, u *unstructured.Unstructured) error {
	t.Helper()
	if err := s.Complete(u); err != nil {
		return err
	}
	return s.Validate(t.Context(), u, nil)
}

// TestSameAsTheAPIServer checks that this package and a kube-apiserver accept and reject the same objects and set the
// same defaults.
func TestSameAsTheAPIServer(t *testing.T) {
	cluster, err := client.New(controlplane.Start(t).Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	schemas, err := NewSchemas()
	if err != nil {
		t.Fatal(err)
	}
	strictly := &client.CreateOptions{DryRun: []string{"All"}, Raw: nil, FieldManager: "test"}
	create := func(u *unstructured.Unstructured) error {
		return client.WithFieldValidation(cluster, "Strict").Create(context.Background(), u, strictly)
	}
	for name, c := range invalid {
		t.Run(name, func(t *testing.T) {
			err := check(t, schemas, c.object(t, "case"))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
			// The API server must name the field or rule that c.says begins with.
			about, _, _ := strings.Cut(c.says, ":")
			if there := fmt.Sprint(create(c.object(t, "case"))); !strings.Contains(there, about) {
				t.Errorf("the API server says %s, and nothing about %s", there, about)
			}
		})
	}
	for name, c := range valid {
		t.Run(name, func(t *testing.T) {
			here, there := c.object(t, "case"), c.object(t, "case")
			if err := check(t, schemas, here); err != nil {
				t.Error(err)
			}
			if err := create(there); err != nil {
				t.Error(err)
			}
			if a, b := fmt.Sprint(here.Object["spec"]), fmt.Sprint(there.Object["spec"]); a != b {
				t.Errorf("completed here: %s\nthere: %s", a, b)
			}
		})
	}
	for _, name := range []string{"Upper", "a_b", strings.Repeat("a", 254)} {
		for where, err := range map[string]error{
			"here": check(t, schemas, valid["Role"].object(t, name)), "there": create(valid["Role"].object(t, name)),
		} {
			if err == nil || !strings.Contains(err.Error(), "metadata.name") {
				t.Errorf("the name %q %s: got %v", name, where, err)
			}
		}
	}
}

// TestMisfit checks that the error for a wrong type names the field, and not its value.
func TestMisfit(t *testing.T) {
	schemas, err := NewSchemas()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ metadata, says string }{
		"Name":        {"{name: 5150}", "metadata.name: must be text; put it in quotes"},
		"Annotation":  {"{name: a, annotations: {a: b, trust.keyserver.dev/paused: true}}", "metadata.annotations[trust.keyserver.dev/paused]: must be text; put it in quotes"},
		"Label":       {"{name: a, labels: {a: 5150}}", "metadata.labels[a]: must be text; put it in quotes"},
		"Labels":      {"{name: a, labels: [5150]}", "metadata.labels: must be a mapping"},
		"Finalizers":  {"{name: a, finalizers: 5150}", "metadata.finalizers: must be a list"},
		"Owner":       {"{name: a, ownerReferences: [{controller: 5150}]}", "metadata.ownerReferences.controller: must be true or false"},
		"Generation":  {"{name: a, generation: '5150'}", "metadata.generation: must be a number"},
		"Time":        {"{name: a, creationTimestamp: '5150'}", "has a value in a wrong format"},
		"NoMapping":   {"[5150]", "metadata: must be a mapping"},
		"NothingElse": {"{name: a}", ""},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "trust.keyserver.dev/v1beta1", "kind": "Role"}}
		if err := yaml.Unmarshal([]byte("metadata: "+c.metadata+"\nspec: {roleName: a, operations: []}"), &u.Object); err != nil {
			t.Fatal(err)
		}
		said := fmt.Sprint(schemas.Complete(u))
		if c.says == "" && said != "<nil>" || !strings.HasPrefix(said, c.says) || strings.Contains(said, "5150") {
			t.Errorf("%s: got %s, want %q", name, said, c.says)
		}
	}
	for name, c := range map[string]struct{ secret, says string }{
		"Text":    {"stringData: {a: b, password: 5150}", "stringData[password]: must be text; put it in quotes"},
		"Base64":  {"data: {a: '5150!'}", "has a value in a wrong format"},
		"Mapping": {"data: 5150", "data: must be a mapping"},
		"Fits":    {"stringData: {a: '5150'}", ""},
	} {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(c.secret), &u.Object); err != nil {
			t.Fatal(err)
		}
		said := fmt.Sprint(CheckType(u, &corev1.Secret{}))
		if c.says == "" && said != "<nil>" || !strings.HasPrefix(said, c.says) || strings.Contains(said, "5150") {
			t.Errorf("%s: got %s, want %q", name, said, c.says)
		}
	}
}

// TestValidateChange checks that immutable fields are rejected if they change.
func TestValidateChange(t *testing.T) {
	schemas, err := NewSchemas()
	if err != nil {
		t.Fatal(err)
	}
	old, now := valid["PrincipalTrust"].object(t, "a"), valid["PrincipalTrust"].object(t, "a")
	for _, u := range []*unstructured.Unstructured{old, now} {
		if err := schemas.Complete(u); err != nil {
			t.Fatal(err)
		}
	}
	if err := schemas.Validate(t.Context(), now, old); err != nil {
		t.Error(err)
	}
	if err := unstructured.SetNestedField(now.Object, int64(8), "spec", "systemId"); err != nil {
		t.Fatal(err)
	}
	if err := schemas.Validate(t.Context(), now, old); err == nil || !strings.Contains(err.Error(), "spec.systemId: cannot be changed") {
		t.Errorf("got %v", err)
	}
}
