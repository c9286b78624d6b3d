package supportbundle

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/urltext"
)

// families are the name prefixes of the allowed metrics: those of this project, of Go, of the process, and of
// controller-runtime.
var families = []string{
	"keyserver_", "go_", "process_", "promhttp_",
	"controller_runtime_", "workqueue_", "rest_client_", "leader_election_", "certwatcher_",
}

// labels are the allowed labels. A metric with another label is omitted.
var labels = strings.Fields(`bound call ceiling code commit conflict expires flag goversion keyserver kind method name
	namespace outcome part peer reason route sink state table use version
	controller host priority result webhook`)

var errNoMetrics = errors.New("the response is not in the text format of Prometheus")

// namedMetrics returns the allowed metrics with all their labels. leftOut is the number of omitted metrics. If a line
// cannot be parsed, it returns the metrics before that line and an error.
func namedMetrics(raw []byte) (kept []byte, leftOut int, err error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(bytes.NewReader(raw))
	if err != nil {
		err = errNoMetrics // the parser's own error quotes the line
	}
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(all)) {
		family := all[name]
		family.Help = nil // docs/metrics.md has the help texts
		found := len(family.Metric)
		family.Metric = slices.DeleteFunc(family.Metric, func(m *dto.Metric) bool { return !namedMetric(name, m) })
		leftOut += found - len(family.Metric)
		if len(family.Metric) == 0 {
			continue
		}
		if _, why := expfmt.MetricFamilyToText(&out, family); why != nil {
			return out.Bytes(), leftOut, errors.Join(err, why)
		}
	}
	return out.Bytes(), leftOut, err
}

// namedMetric reports whether a metric is allowed, and reduces URLs in its labels to scheme and host.
func namedMetric(name string, m *dto.Metric) bool {
	if !slices.ContainsFunc(families, func(begin string) bool { return strings.HasPrefix(name, begin) }) {
		return false
	}
	for _, label := range m.Label {
		if !slices.Contains(labels, label.GetName()) {
			return false
		}
		value := urltext.Redact(label.GetValue())
		label.Value = &value
	}
	return true
}
