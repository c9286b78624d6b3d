package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

var built program.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m, &built, false)) }

const root = "../.."

type block struct{ language, text string }

var fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

func blocks(t *testing.T) []block {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "resources.md"))
	if err != nil {
		t.Fatal(err)
	}
	var all []block
	for _, m := range fence.FindAllStringSubmatch(string(page), -1) {
		all = append(all, block{m[1], m[2]})
	}
	return all
}

func TestRefusals(t *testing.T) {
	whole := fstest.MapFS{}
	for _, pattern := range []string{bases + "/*.yaml", conditionsFile, metadataFile, eventsFile, "config/samples/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(root, file)
			if err != nil {
				t.Fatal(err)
			}
			whole[name] = &fstest.MapFile{Data: text}
		}
	}
	if _, err := render(whole); err != nil {
		t.Fatal(err)
	}
	for reason, tc := range map[string]struct{ file, old, replacement, want string }{
		"a kind is gone":                          {bases + "/trust.keyserver.dev_roles.yaml", "kind: Role\n", "kind: Duty\n", "there is no kind Role"},
		"a definition is not one":                 {bases + "/trust.keyserver.dev_roles.yaml", "spec:\n", "sepc:\n", "sepc"},
		"a constant whose comment went astray":    {metadataFile, "// AnnotationPaused,", "// Pausing,", "AnnotationPaused"},
		"an event whose reason cannot be read":    {eventsFile, `Reason: "Created"`, `Reason: what`, "CreatedEvent"},
		"an event without the names of fields":    {eventsFile, `Event{Reason: "Released", Action: "Release", Note: message}`, `Event{false, "Released", "Release", message}`, "ReleasedEvent"},
		"a sample that the page shows is renamed": {"config/samples/role.yaml", "", "", "role.yaml"},
	} {
		t.Run(reason, func(t *testing.T) {
			broken := fstest.MapFS{}
			for name, file := range whole {
				broken[name] = file
			}
			text := string(whole[tc.file].Data)
			if tc.old == "" {
				delete(broken, tc.file)
			} else if changed := strings.ReplaceAll(text, tc.old, tc.replacement); changed == text {
				t.Fatalf("%s does not hold %q", tc.file, tc.old)
			} else {
				broken[tc.file] = &fstest.MapFile{Data: []byte(changed)}
			}
			if _, err := render(broken); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want one that names %q", err, tc.want)
			}
		})
	}
}

// TestEveryKindIsShown checks that the page contains the fields and an example of each kind.
func TestEveryKindIsShown(t *testing.T) {
	book, err := readKinds(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, b := range blocks(t) {
		if b.language != "yaml" {
			continue
		}
		if !strings.HasPrefix(b.text, "# ") || pathOf(b) == "" {
			t.Errorf("the first line of an example is no path: %.60q", b.text)
		}
		for _, text := range strings.Split(b.text, "\n---\n") {
			var head struct{ Kind string }
			if err := yaml.Unmarshal([]byte(text), &head); err != nil {
				t.Errorf("%v in\n%s", err, text)
			}
			shown[head.Kind] = true
		}
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "resources.md"))
	if err != nil {
		t.Fatal(err)
	}
	for kind := range book.kinds {
		if !shown[kind] {
			t.Errorf("the page has no example of %s", kind)
		}
		for _, heading := range []string{"### " + kind, "### Fields of " + kind} {
			if !strings.Contains(string(page), "\n"+heading+"\n") {
				t.Errorf("the page has no heading %q", heading)
			}
		}
	}
}

// pathOf returns the path of an example, which is its first line.
func pathOf(b block) string {
	first, _, _ := strings.Cut(b.text, "\n")
	name, ok := strings.CutPrefix(first, "# ")
	if !ok || !strings.HasSuffix(name, ".yaml") || strings.Contains(name, " ") {
		return ""
	}
	return name
}

func TestExamplesAreAccepted(t *testing.T) {
	c := startCluster(t)
	n := 0
	for _, b := range blocks(t) {
		if b.language != "yaml" {
			continue
		}
		n++
		if out, err := c.shell(t, t.TempDir(), "kubectl apply --server-side --dry-run=server -f - <<'END'\n"+b.text+"\nEND"); err != nil {
			t.Errorf("%v\n%s\n%s", err, out, b.text)
		}
	}
	if n < 8 {
		t.Errorf("only %d examples were found", n)
	}
}

// TestSession follows the page like a reader after "make run": it stores each example at its path and runs each
// command, from top to bottom.
func TestSession(t *testing.T) {
	controlplane.Need(t)
	up := built.Up(t, t.TempDir())
	c := &cluster{kubeconfig: filepath.Join(up.Dir, "kubeconfig")}
	home, typed := t.TempDir(), 0
	for _, b := range blocks(t) {
		switch b.language {
		case "yaml":
			file := filepath.Join(home, pathOf(b))
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(b.text), 0o600); err != nil {
				t.Fatal(err)
			}
		case "sh":
			typed++
			out, err := c.shell(t, home, b.text)
			if err != nil {
				state, _ := c.shell(t, home, "kubectl get trust -A -o wide")
				t.Fatalf("%v\n%s\n%s\n%s", err, b.text, out, state)
			}
			t.Logf("%s%s", indent(b.text), out)
		}
	}
	if typed < 10 {
		t.Errorf("only %d blocks of commands were found", typed)
	}
}

func indent(commands string) string {
	return "$ " + strings.ReplaceAll(strings.TrimSpace(commands), "\n", "\n$ ") + "\n"
}

// TestCommandsNameFilesOfThePage checks that commands use only files that the page has shown before.
func TestCommandsNameFilesOfThePage(t *testing.T) {
	known := map[string]bool{}
	for _, b := range blocks(t) {
		if b.language == "yaml" {
			known[pathOf(b)] = true
			continue
		}
		if b.language != "sh" {
			continue
		}
		for _, m := range regexp.MustCompile(`-f (\S+\.yaml)`).FindAllStringSubmatch(b.text, -1) {
			if !known[m[1]] {
				t.Errorf("%s is applied before the page shows it", m[1])
			}
		}
	}
	if len(known) == 0 {
		t.Error("the page has no examples")
	}
}
