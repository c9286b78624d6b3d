#!/usr/bin/env bash
# Usage: hack/cluster/kill.sh SIGNAL COMPONENT...
#
# Sends a signal to components of the node, and waits until their processes have ended.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_running
(($# >= 2)) || fail "usage: hack/cluster/kill.sh SIGNAL COMPONENT...; example: hack/cluster/kill.sh KILL kubelet"
signal=$1; shift
for component in "$@"; do
	[[ -s $state/run/$component ]] || fail "$component was not started"
	pid=$(<"$state/run/$component")
	inside kill -s "$signal" "$pid" || fail "$component is not running"
	while inside kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
done
