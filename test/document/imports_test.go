package document

import (
	"path"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var (
	// wiring matches the packages that connect all parts. They may import all of them.
	wiring = regexp.MustCompile(`^(\.|cmd/[^/]*|internal/commands|internal/server)$`)
	// testSupport matches packages that are linked into tests and into programs for development.
	testSupport = regexp.MustCompile(`^(hack|test|internal/store/pgtest|internal/auth/ldap/ldaptest|internal/server/testserver|internal/engine/enginetest|internal/store/cache/cachetest)(/.*)?$`)
)

// TestEveryPackageHasAnImportRule checks that the import rules of .golangci.yml cover every package.
func TestEveryPackageHasAnImportRule(t *testing.T) {
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]struct {
						Mode  string   `json:"list-mode"`
						Files []string `json:"files"`
						Allow []string `json:"allow"`
						Deny  []struct {
							Pkg string `json:"pkg"`
						} `json:"deny"`
					} `json:"rules"`
				} `json:"depguard"`
			} `json:"settings"`
		} `json:"linters"`
	}
	if err := yaml.Unmarshal([]byte(read(t, ".golangci.yml")), &config); err != nil {
		t.Fatal(err)
	}
	module := moduleName(t)
	// A rule counts only if it applies to every package of this module.
	var covered []*regexp.Regexp
	for _, rule := range config.Linters.Settings.Depguard.Rules {
		whole := rule.Mode == "strict"
		for _, d := range rule.Deny {
			whole = whole || d.Pkg == module
		}
		for _, glob := range rule.Files {
			if whole && !strings.HasPrefix(glob, "!") {
				covered = append(covered, pattern(glob))
			}
		}
	}
	packages := map[string]string{}
	for _, name := range written(t) {
		if path.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go") {
			packages[path.Dir(name)] = name
		}
	}
	for dir, file := range packages {
		has := wiring.MatchString(dir) || testSupport.MatchString(dir)
		for _, p := range covered {
			has = has || p.MatchString("/"+file)
		}
		if !has {
			t.Errorf("%s has no rule in .golangci.yml that says what it may import", dir)
		}
	}
	if len(covered) < 20 || len(packages) < 30 {
		t.Errorf("only %d rules and %d packages were read", len(covered), len(packages))
	}
}

func moduleName(t *testing.T) string {
	t.Helper()
	return strings.Fields(read(t, "go.mod"))[1]
}

// pattern converts a glob of depguard to a regular expression.
func pattern(glob string) *regexp.Regexp {
	p := regexp.QuoteMeta(glob)
	p = strings.ReplaceAll(p, `\*\*/`, `(.*/)?`)
	p = strings.ReplaceAll(p, `\*\*`, `.*`)
	p = strings.ReplaceAll(p, `\*`, `[^/]*`)
	return regexp.MustCompile(`^/?` + p + `$`)
}
