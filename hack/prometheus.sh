#!/usr/bin/env bash
# Usage: RIG_PROMETHEUS=$(hack/prometheus.sh)
#
# Prints the path of Prometheus. It is built from the sources that test/thirdparty/promtool pins, with only the kind of
# service discovery that a ServiceMonitor needs.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

path=$root/bin/test/prometheus
progress "building Prometheus from source" "about 3 minutes on 2 cores the first time" \
	env CGO_ENABLED=0 go build -C "$root/test/thirdparty/promtool" -tags remove_all_sd,enable_kubernetes_sd -trimpath -buildvcs=false -ldflags "-s -w" -o "$path" github.com/prometheus/prometheus/cmd/prometheus ||
	fail "could not build the Prometheus of test/thirdparty/promtool"
echo "$path"
