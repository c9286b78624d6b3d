#!/usr/bin/env bash
# Usage: make smoke-cluster
#
# The shortest part of test-cluster: it installs the product on a node according to its documentation, uses it from a
# workload, kills it, and uninstalls it. If a node cannot be created, prints the reason and succeeds without a test.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

not_run() {
	say "smoke-cluster was NOT RUN: ${1#error: }"
	exit 0
}
if ! running; then
	reason=$( (need_node_rights) 2>&1) || not_run "$reason"
	trap '"$here/down.sh"' EXIT
	"$here/up.sh" >&2 || not_run "the node did not start; the cause is above"
fi
SMOKE=1 "$here/test.sh" -run '^TestSmoke$'
