package quota_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
)

func TestCollectors(t *testing.T) {
	q := quota.New[string](5, 4)
	q.Take("a", 3)
	q.Take("a", 2) // more than its share
	q.Take("b", 4) // more than is left for all
	c := quota.NewCrowd[string](2, 2, nil)
	for range 3 { // the third member evicts the first
		c.Join("a", func() {})
	}
	var unknown quota.Tally
	unknown.Count(quota.FullEach)

	all := prometheus.NewPedanticRegistry()
	for _, shown := range [][]prometheus.Collector{q.Collectors("bytes"), c.Collectors("connections"), unknown.Collectors("sessions", nil)} {
		for _, one := range shown {
			all.MustRegister(one)
		}
	}
	const want = `
# HELP keyserver_ceiling_largest_share_ratio Usage of a ceiling by its largest user (principal or address), divided by the share of one user.
# TYPE keyserver_ceiling_largest_share_ratio gauge
keyserver_ceiling_largest_share_ratio{ceiling="bytes"} 0.75
keyserver_ceiling_largest_share_ratio{ceiling="connections"} 1
# HELP keyserver_ceiling_refusals_total Requests, connections or bytes that were refused because the principal or address used its share, or because the ceiling was reached.
# TYPE keyserver_ceiling_refusals_total counter
keyserver_ceiling_refusals_total{bound="ceiling",ceiling="bytes"} 1
keyserver_ceiling_refusals_total{bound="ceiling",ceiling="connections"} 1
keyserver_ceiling_refusals_total{bound="ceiling",ceiling="sessions"} 0
keyserver_ceiling_refusals_total{bound="share",ceiling="bytes"} 1
keyserver_ceiling_refusals_total{bound="share",ceiling="connections"} 0
keyserver_ceiling_refusals_total{bound="share",ceiling="sessions"} 1
`
	if err := testutil.GatherAndCompare(all, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
