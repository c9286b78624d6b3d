#!/usr/bin/env bash
# Usage: make smoke-cluster
#
# The shortest part of test-cluster: the product is installed on a node by its documents,
# used by a workload, killed, and uninstalled. If no node can be made, it prints the reason
# and succeeds without a test.
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
