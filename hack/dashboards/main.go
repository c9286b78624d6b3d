// Command dashboards generates the Grafana dashboards in config/grafana from dashboards.go. They are JSON files that
// Grafana can import.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: dashboards DIRECTORY")
		os.Exit(2)
	}
	for _, d := range dashboards {
		if err := write(filepath.Join(os.Args[1], d.uid+".json"), d); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func write(path string, d dashboard) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(d.model()); err != nil {
		return err
	}
	return os.WriteFile(path, text.Bytes(), 0o600) //nolint:gosec // the directory is the argument
}

// Sizes in the grid of Grafana, whose rows have 24 columns.
const (
	wide   = 24
	across = 3 // panels in a row
	high   = 8
)

// schemaVersion is the version of dashboards since Grafana 11.
const schemaVersion = 39

type object map[string]any

func (d dashboard) model() object {
	var panels []object
	id, y := 0, 0
	for _, r := range d.rows {
		id++
		panels = append(panels, object{"id": id, "type": "row", "title": r.title, "collapsed": false, "panels": []object{}, "gridPos": place(0, y, wide, 1)})
		y++
		for i, p := range r.panels {
			id++
			panels = append(panels, p.model(id, place(i%across*wide/across, y+i/across*high, wide/across, high)))
		}
		y += (len(r.panels) + across - 1) / across * high
	}
	return object{
		"uid": d.uid, "title": d.title, "description": d.description, "tags": []string{"keyserver"}, "schemaVersion": schemaVersion,
		"editable": true, "graphTooltip": 1, "refresh": "30s", "time": object{"from": "now-6h", "to": "now"}, "timezone": "",
		"annotations": object{"list": []object{}}, "links": []object{{
			"title": "Key server", "type": "dashboards", "tags": []string{"keyserver"}, "asDropdown": true, "includeVars": true, "keepTime": true, "targetBlank": false, "icon": "external link", "tooltip": "",
		}},
		"templating": object{"list": []object{{
			"name": "source", "type": "datasource", "label": "Prometheus", "query": "prometheus", "current": object{"text": "", "value": ""}, "hide": 0, "refresh": 1, "regex": "", "multi": false, "includeAll": false, "options": []object{},
		}}},
		"panels": panels,
	}
}

func place(x, y, w, h int) object { return object{"x": x, "y": y, "w": w, "h": h} }

var source = object{"type": "prometheus", "uid": "${source}"}

func (p panel) model(id int, at object) object {
	targets := make([]object, len(p.queries))
	for i, q := range p.queries {
		targets[i] = object{
			"refId": string(rune('A' + i)), "datasource": source, "expr": q.expr, "legendFormat": q.legend, "range": true, "instant": false, "editorMode": "code",
		}
	}
	custom := object{"fillOpacity": 10, "lineWidth": 1, "showPoints": "never", "spanNulls": false}
	if p.stacked {
		custom["stacking"] = object{"mode": "normal", "group": "A"}
	}
	defaults := object{"unit": p.unit, "min": 0, "custom": custom, "color": object{"mode": "palette-classic"}}
	if p.signed {
		delete(defaults, "min")
	}
	if len(p.steps) > 0 {
		defaults["thresholds"] = object{"mode": "absolute", "steps": p.steps.model()}
	}
	model := object{
		"id": id, "type": "timeseries", "title": p.title, "description": p.description, "datasource": source, "gridPos": at, "targets": targets,
		"fieldConfig": object{"defaults": defaults, "overrides": []object{}},
		"options":     object{"legend": object{"displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": []string{}}, "tooltip": object{"mode": "multi", "sort": "desc"}},
	}
	if p.stat {
		delete(defaults, "custom")
		defaults["color"] = object{"mode": "thresholds"}
		model["type"] = "stat"
		model["options"] = object{
			"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
			"colorMode":     "value", "graphMode": "area", "textMode": "auto", "justifyMode": "auto", "orientation": "auto",
			"wideLayout": true, "showPercentChange": false, "percentChangeColorMode": "standard",
		}
	}
	return model
}

// steps contains thresholds with a color for values from the threshold on.
type steps []step

type step struct {
	from  float64
	color string
}

func (s steps) model() []object {
	all := []object{{"color": "green", "value": nil}}
	if s[0].from < 0 { // a negative first step sets the color of values below the first threshold
		all[0]["color"] = s[0].color
		s = s[1:]
	}
	for _, one := range s {
		all = append(all, object{"color": one.color, "value": one.from})
	}
	return all
}
