package server

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/version"
)

// BuildInfo returns a metric with the version, the commit and the Go version of the program.
func BuildInfo() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "keyserver_build_info", Help: "Version of the running program, in the labels; always 1.",
		ConstLabels: prometheus.Labels{"version": version.String(), "commit": version.Commit(), "goversion": runtime.Version()},
	}, func() float64 { return 1 })
}
