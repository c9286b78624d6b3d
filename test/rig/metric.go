package rig

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// Metric returns the sum of all series of a metric, or the value of one series with all of its labels. address is that
// of --metrics-listen.
func Metric(t testing.TB, address, name string) (sum float64) {
	t.Helper()
	resp, err := http.Get("http://" + address + "/metrics")
	Must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	Must(t, err)
	found := false
	for line := range strings.Lines(string(body)) {
		if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == ' ' || rest[0] == '{') {
			n, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' ')+1:]), 64)
			Must(t, err)
			sum, found = sum+n, true
		}
	}
	if !found {
		t.Fatalf("there is no metric %s", name)
	}
	return sum
}
