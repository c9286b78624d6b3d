package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	grafana "github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

func register() {
	cog.NewRuntime().RegisterPanelcfgVariant(timeseries.VariantConfig())
	cog.NewRuntime().RegisterPanelcfgVariant(stat.VariantConfig())
	cog.NewRuntime().RegisterDataqueryVariant(prometheus.VariantConfig())
}

// accepted returns the errors of Grafana's schema for a dashboard. The library returns a list of errors that is not nil
// even if it is empty.
func accepted(text []byte) error {
	var read grafana.Dashboard //nolint:staticcheck // Grafana provisions files of this version
	for _, err := range []error{read.UnmarshalJSONStrict(text), read.Validate()} {
		if err != nil && err.Error() != "" {
			return err
		}
	}
	return nil
}

// TestGrafanaKnowsEveryMember checks that the dashboards match Grafana's own schema and have no other members.
func TestGrafanaKnowsEveryMember(t *testing.T) {
	register()
	for _, d := range dashboards {
		text, err := json.Marshal(d.model())
		if err != nil {
			t.Fatal(err)
		}
		if err := accepted(text); err != nil {
			t.Errorf("%s: %v", d.uid, err)
		}
	}
}

// TestAMistakeIsFound checks that an unknown member and an invalid value are detected.
func TestAMistakeIsFound(t *testing.T) {
	register()
	for reason, spoil := range map[string]func(panel object){
		"a member of a panel":   func(p object) { p["titel"] = "x" },
		"an option of a panel":  func(p object) { p["options"].(object)["legende"] = "x" },
		"a member of a query":   func(p object) { p["targets"].([]object)[0]["expression"] = "x" },
		"a title of other type": func(p object) { p["title"] = 1 },
	} {
		model := dashboards[0].model()
		for _, p := range model["panels"].([]object) {
			if p["type"] == "timeseries" {
				spoil(p)
				break
			}
		}
		text, err := json.Marshal(model)
		if err != nil {
			t.Fatal(err)
		}
		if err := accepted(text); err == nil {
			t.Errorf("%s passes", reason)
		}
	}
}

// TestFilesAreFresh checks that config/grafana is the output of the generator.
func TestFilesAreFresh(t *testing.T) {
	dir := t.TempDir()
	for _, d := range dashboards {
		path := filepath.Join(dir, d.uid+".json")
		if err := write(path, d); err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("..", "..", "config", "grafana", d.uid+".json"))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is stale: run make generate (%v)", d.uid, err)
		}
	}
}
