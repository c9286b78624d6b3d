#!/usr/bin/env bash
# Usage: make cluster-down
#
# Stops both nodes, or only the second one with NODE=second. When the first process of a node ends, all its other
# processes end, and with them its namespaces with all mounts and interfaces. The script removes its cgroups and files.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [[ $NODE == first && -d $cluster/second ]]; then
	NODE=second "$here/down.sh"
fi
if running; then
	kill -s KILL "$(<"$state/init.pid")"
fi
if [[ -e $state/cgroups ]]; then
	while read -r _ _ cgroup; do
		# All remaining cgroups belong to the node, because its namespaces do not exist any more.
		for _ in {1..100}; do
			find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || true
			[[ -e $cgroup ]] || break
			sleep 0.1
		done
		[[ ! -e $cgroup ]] || fail "processes of the node did not end; their ids are in $cgroup/cgroup.procs"
	done <"$state/cgroups"
fi
rm -rf "$state"
