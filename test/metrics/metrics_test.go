// Package metrics compares docs/metrics.md, the alerts and the dashboards with the metrics of the program, and causes
// each metric of a key server to change.
package metrics

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// documented is a row of docs/metrics.md.
type documented struct {
	kind   string
	labels []string
}

var (
	metricName = regexp.MustCompile(`^keyserver_[a-z0-9_]*[a-z0-9]$`)
	row        = regexp.MustCompile("(?m)^\\| `(keyserver_[a-z0-9_]+)(?:\\{([a-z_,]+)\\})?` \\| (counter|gauge|histogram) \\| \\S")
)

// notMetrics are strings that look like names of metrics: PostgreSQL's channel and a table.
var notMetrics = []string{"keyserver_changes", "keyserver_schema"}

func page(t *testing.T) map[string]documented {
	t.Helper()
	all := map[string]documented{}
	for _, m := range row.FindAllStringSubmatch(read(t, "docs", "metrics.md"), -1) {
		if _, twice := all[m[1]]; twice {
			t.Errorf("docs/metrics.md has %s twice", m[1])
		}
		d := documented{kind: m[3]}
		if m[2] != "" {
			d.labels = strings.Split(m[2], ",")
		}
		all[m[1]] = d
	}
	if len(all) < 50 {
		t.Fatalf("docs/metrics.md has %d metrics; its tables cannot be read", len(all))
	}
	return all
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	root, err := rig.Root()
	rig.Must(t, err)
	text, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	rig.Must(t, err)
	return string(text)
}

// spelled returns the names of metrics in the sources of the program.
func spelled(t *testing.T) map[string]bool {
	t.Helper()
	root, err := rig.Root()
	rig.Must(t, err)
	names := map[string]bool{}
	rig.Must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "hack" || d.Name() == "bin"):
			return filepath.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil && metricName.MatchString(text) && !slices.Contains(notMetrics, text) {
					names[text] = true
				}
			}
			return true
		})
		return nil
	}))
	return names
}

// TestPageIsWhole checks that docs/metrics.md has a row for each metric in the source code, and no other rows.
func TestPageIsWhole(t *testing.T) {
	listed, sources := page(t), spelled(t)
	if len(sources) < 50 {
		t.Fatalf("%d metrics were found in the sources", len(sources))
	}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		if _, ok := listed[name]; !ok {
			t.Errorf("docs/metrics.md has no row for %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if !sources[name] {
			t.Errorf("docs/metrics.md has a row for %s, which no process has", name)
		}
	}
}
