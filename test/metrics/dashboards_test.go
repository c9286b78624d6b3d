package metrics

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/promtool"
)

// notOurs are metrics of controller-runtime and client-go that alerts and dashboards use, with their labels.
var notOurs = map[string][]string{
	"leader_election_master_status":      {"name"},
	"workqueue_depth":                    {"name", "controller", "priority"},
	"controller_runtime_reconcile_total": {"controller", "result"},
}

// everywhere has the labels that Prometheus adds to all series.
var everywhere = []string{"instance", "pod", "job", "namespace", "le"}

// board has the parts of a dashboard that the tests check.
type board struct {
	UID, Title, Description string
	SchemaVersion           int
	Panels                  []struct {
		ID                       int
		Type, Title, Description string
		GridPos                  struct{ X, Y, W, H int }
		Targets                  []struct {
			Expr, RefID, LegendFormat string
			Datasource                struct{ Type, UID string }
		}
		FieldConfig struct{ Defaults struct{ Unit string } }
	}
}

func boards(t *testing.T) map[string]board {
	t.Helper()
	root, err := rig.Root()
	rig.Must(t, err)
	files, err := filepath.Glob(filepath.Join(root, "config", "grafana", "*.json"))
	rig.Must(t, err)
	all := map[string]board{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		rig.Must(t, err)
		var b board
		rig.Must(t, json.Unmarshal(text, &b))
		all[filepath.Base(file)] = b
	}
	if len(all) != 4 {
		t.Fatalf("there are %d dashboards", len(all))
	}
	return all
}

// units are the units of Grafana that the dashboards use.
var units = []string{"short", "s", "bytes", "percentunit", "reqps", "ops", "wps", "cps"}

// TestEachPanelSaysWhatItShows checks that each panel has a title, a description, a unit and a data source.
func TestEachPanelSaysWhatItShows(t *testing.T) {
	for file, b := range boards(t) {
		if b.UID+".json" != file || b.Title == "" || b.Description == "" || b.SchemaVersion == 0 {
			t.Errorf("%s has the uid %q, the title %q, the description %q and the schema %d", file, b.UID, b.Title, b.Description, b.SchemaVersion)
		}
		ids, titles, cells := map[int]bool{}, map[string]bool{}, map[string]string{}
		for _, p := range b.Panels {
			if ids[p.ID] || p.ID == 0 {
				t.Errorf("%s: the panel %q has no id of its own", file, p.Title)
			}
			ids[p.ID] = true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					at := fmt.Sprint(x, " ", y)
					if cells[at] != "" || x >= 24 {
						t.Errorf("%s: the panel %q lies over %q", file, p.Title, cells[at])
					}
					cells[at] = p.Title
				}
			}
			if p.Type == "row" {
				continue
			}
			if p.Title == "" || titles[p.Title] || p.Description == "" || !slices.Contains(units, p.FieldConfig.Defaults.Unit) {
				t.Errorf("%s: the panel %q has the description %q and the unit %q", file, p.Title, p.Description, p.FieldConfig.Defaults.Unit)
			}
			titles[p.Title] = true
			refs := map[string]bool{}
			for _, q := range p.Targets {
				if q.Expr == "" || q.LegendFormat == "" || refs[q.RefID] || q.Datasource.Type != "prometheus" || q.Datasource.UID != "${source}" {
					t.Errorf("%s: the panel %q has a query that is not whole: %+v", file, p.Title, q)
				}
				refs[q.RefID] = true
			}
			if len(p.Targets) == 0 {
				t.Errorf("%s: the panel %q shows nothing", file, p.Title)
			}
		}
	}
}

// TestARunbookThatAPanelNamesExists checks the runbook sections that panels name.
func TestARunbookThatAPanelNamesExists(t *testing.T) {
	page := read(t, "docs", "runbook.md")
	for file, b := range boards(t) {
		for _, p := range b.Panels {
			if _, name, ok := strings.Cut(p.Description, "Runbook: "); ok && !strings.Contains(page, "\n## "+strings.TrimSuffix(name, ".")+"\n") {
				t.Errorf("%s: the panel %q names the runbook %q, which does not exist", file, p.Title, name)
			}
		}
	}
}

// expressions returns the expressions of dashboards and alerts, by their location.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for file, b := range boards(t) {
		for _, p := range b.Panels {
			for _, q := range p.Targets {
				all[file+": "+p.Title+" "+q.RefID] = q.Expr
			}
		}
	}
	var rules struct {
		Spec struct {
			Groups []struct {
				Rules []struct{ Alert, Expr string }
			}
		}
	}
	rig.Must(t, yaml.Unmarshal([]byte(read(t, "config", "prometheus", "rules.yaml")), &rules))
	for _, group := range rules.Spec.Groups {
		for _, rule := range group.Rules {
			all["rules.yaml: "+rule.Alert] = rule.Expr
		}
	}
	return all
}

var (
	selector = regexp.MustCompile(`([a-z][a-z0-9]*_[a-z0-9_]+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)\s*"`)
	grouping = regexp.MustCompile(`\b(?:by|on|without)\s*\(([^)]*)\)`)
	quoted   = regexp.MustCompile(`"[^"]*"`)
)

// functions are names that the regular expression would find as metrics.
var functions = []string{"histogram_quantile"}

// TestExpressionsAreOfMetricsThatExist checks that the metrics and labels of all expressions exist.
func TestExpressionsAreOfMetricsThatExist(t *testing.T) {
	known := page(t)
	for where, expr := range expressions(t) {
		for _, problem := range wrong(known, expr) {
			t.Errorf("%s: %s", where, problem)
		}
	}
	for expr, want := range map[string]string{
		"sum(keyserver_metric_that_never_was)": "keyserver_metric_that_never_was", `keyserver_keys{stat="enabled"}`: "stat", "sum by (methode) (keyserver_logins_total)": "methode",
		"keyserver_ready_bucket": "keyserver_ready_bucket",
	} {
		if found := wrong(known, expr); len(found) != 1 || !strings.Contains(found[0], want) {
			t.Errorf("of %s is found %q, want %s", expr, found, want)
		}
	}
}

func wrong(known map[string]documented, expr string) (problems []string) {
	labels := slices.Clone(everywhere)
	rest := grouping.ReplaceAllString(expr, "")
	for _, m := range selector.FindAllStringSubmatch(rest, -1) {
		name := m[1]
		if slices.Contains(functions, name) {
			continue
		}
		has, ok := labelsOf(known, name)
		if !ok {
			problems = append(problems, "there is no metric "+name)
			continue
		}
		labels = append(labels, has...)
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(has, l[1]) {
				problems = append(problems, name+" has no label "+l[1])
			}
		}
	}
	for _, m := range grouping.FindAllStringSubmatch(quoted.ReplaceAllString(expr, ""), -1) {
		for _, label := range strings.Split(m[1], ",") {
			if label = strings.TrimSpace(label); len(problems) == 0 && !slices.Contains(labels, label) {
				problems = append(problems, "no metric has the label "+label)
			}
		}
	}
	return problems
}

func labelsOf(known map[string]documented, name string) ([]string, bool) {
	if labels, ok := notOurs[name]; ok {
		return labels, true
	}
	if d, ok := known[name]; ok && d.kind != "histogram" {
		return d.labels, true
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if stem, ok := strings.CutSuffix(name, suffix); ok && known[stem].kind == "histogram" {
			return known[stem].labels, true
		}
	}
	return nil, false
}

// TestExpressionsCanBeRead checks that Prometheus can parse the expressions.
func TestExpressionsCanBeRead(t *testing.T) {
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var all []rule
	expressions := expressions(t)
	for i, where := range slices.Sorted(maps.Keys(expressions)) {
		all = append(all, rule{fmt.Sprintf("test:expression:%d", i), expressions[where]})
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "expressions", "rules": all}}})
	rig.Must(t, err)
	file := filepath.Join(t.TempDir(), "expressions.yaml")
	rig.Must(t, os.WriteFile(file, text, 0o600))
	if said, err := promtool.Run(t, "check", "rules", file); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
	rig.Must(t, os.WriteFile(file, []byte("groups: [{name: wrong, rules: [{record: 'test:wrong', expr: 'sum(('}]}]"), 0o600))
	if _, err := promtool.Run(t, "check", "rules", file); err == nil {
		t.Error("what is no expression passes")
	}
}
