package document

import (
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// form is an issue form, with the members that our forms use. GitHub silently ignores a form with an unknown member.
type form struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Labels      []string `json:"labels"`
	Body        []struct {
		Type       string `json:"type"`
		ID         string `json:"id"`
		Attributes struct {
			Label       string   `json:"label"`
			Description string   `json:"description"`
			Placeholder string   `json:"placeholder"`
			Render      string   `json:"render"`
			Value       string   `json:"value"`
			Options     []string `json:"options"`
		} `json:"attributes"`
		Validations struct {
			Required bool `json:"required"`
		} `json:"validations"`
	} `json:"body"`
}

func TestIssueForms(t *testing.T) {
	for name, required := range map[string][]string{
		"bug.yml":     {"version", "installation", "platform", "happened", "steps", "objects", "logs"},
		"feature.yml": {"need", "proposal", "security", "version"},
	} {
		var f form
		if err := yaml.UnmarshalStrict([]byte(textOf(t, ".github/ISSUE_TEMPLATE/"+name)), &f); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if f.Name == "" || f.Description == "" {
			t.Errorf("%s has no name, or no description", name)
		}
		ids := map[string]bool{}
		var asked []string
		for _, item := range f.Body {
			if item.Type == "markdown" {
				if item.Attributes.Value == "" || item.Validations.Required {
					t.Errorf("%s: a text says nothing, or asks for an answer", name)
				}
				continue
			}
			if !slices.Contains([]string{"input", "textarea", "dropdown"}, item.Type) || (item.Type == "dropdown") != (len(item.Attributes.Options) > 0) {
				t.Errorf("%s: %s is a %q with %d options", name, item.ID, item.Type, len(item.Attributes.Options))
			}
			if !regexp.MustCompile(`^[a-z]+$`).MatchString(item.ID) || item.Attributes.Label == "" || ids[item.ID] {
				t.Errorf("%s: %q has no label, or its id is none or another's", name, item.ID)
			}
			ids[item.ID] = true
			if item.Validations.Required {
				asked = append(asked, item.ID)
			}
		}
		if diff := cmp.Diff(required, asked); diff != "" {
			t.Errorf("%s: what must be filled in (-want +got):\n%s", name, diff)
		}
	}
}

// An action is pinned to a reviewed commit, not to a tag that its owner can move.
func TestActionsArePinned(t *testing.T) {
	uses := regexp.MustCompile(`(?m)^\s*(?:- )?uses: (.*)$`)
	pinned := regexp.MustCompile(`^\./\S+$|^[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	found := 0
	files, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		for _, action := range uses.FindAllStringSubmatch(textOf(t, ".github/workflows/"+filepath.Base(file)), -1) {
			found++
			if !pinned.MatchString(action[1]) {
				t.Errorf("%s: %s has no commit, or does not say which version that is", filepath.Base(file), action[1])
			}
		}
	}
	if found < 5 {
		t.Errorf("only %d actions were found", found)
	}
}

// Dependabot watches every manifest with pinned versions.
func TestDependabotWatchesEveryManifest(t *testing.T) {
	var config struct {
		Updates []struct {
			Ecosystem   string   `json:"package-ecosystem"`
			Directory   string   `json:"directory"`
			Directories []string `json:"directories"`
		} `json:"updates"`
	}
	if err := yaml.Unmarshal([]byte(textOf(t, ".github/dependabot.yml")), &config); err != nil {
		t.Fatal(err)
	}
	watched := map[string][]string{}
	for _, u := range config.Updates {
		directories := u.Directories
		if u.Directory != "" {
			directories = append(directories, u.Directory)
		}
		watched[u.Ecosystem] = append(watched[u.Ecosystem], directories...)
	}
	want := map[string][]string{"github-actions": {"/"}}
	ecosystems := map[string]string{"go.mod": "gomod", "package.json": "npm", "Dockerfile": "docker"}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "node_modules" || relative == "bin" || relative != "." && strings.HasPrefix(entry.Name(), ".")) {
			return fs.SkipDir
		}
		if ecosystem, known := ecosystems[entry.Name()]; known && !entry.IsDir() {
			want[ecosystem] = append(want[ecosystem], path.Join("/", filepath.ToSlash(filepath.Dir(relative))))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, directories := range watched {
		slices.Sort(directories)
	}
	for _, directories := range want {
		slices.Sort(directories)
	}
	if diff := cmp.Diff(want, watched); diff != "" {
		t.Errorf("dependabot.yml (-want +got):\n%s", diff)
	}
}
