package rig

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// Metric returns the sum of all series of a metric, or the value of one series with all of its labels. address is that
// of --metrics-listen.
func Metric(t testing.TB, address, name string) float64 {
	t.Helper()
	sum, err := FindMetric(address, name)
	Must(t, err)
	return sum
}

// FindMetric is like Metric, but returns the error.
func FindMetric(address, name string) (sum float64, err error) {
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	found := false
	for line := range strings.Lines(string(body)) {
		if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == ' ' || rest[0] == '{') {
			n, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' ')+1:]), 64)
			if err != nil {
				return 0, err
			}
			sum, found = sum+n, true
		}
	}
	if !found {
		return 0, fmt.Errorf("there is no metric %s", name)
	}
	return sum, nil
}
