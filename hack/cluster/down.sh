#!/usr/bin/env bash
# Usage: make cluster-down
#
# Ends both nodes, or only the second one with NODE=second. The end of a node's first process ends all its others,
# and with them its namespaces, which have all its mounts and interfaces. Its cgroups and files are removed.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [[ $NODE == first && -d $cluster/second ]]; then
	NODE=second "$here/down.sh"
fi
if running; then
	kill -s KILL "$(<"$state/init.pid")"
fi
if [[ -e $state/cgroups ]]; then
	while read -r _ _ cgroup; do
		# Everything left there belongs to the node: its namespaces are gone.
		for _ in {1..100}; do
			find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || true
			[[ -e $cgroup ]] || break
			sleep 0.1
		done
		[[ ! -e $cgroup ]] || fail "processes of the node did not end; their ids are in $cgroup/cgroup.procs"
	done <"$state/cgroups"
fi
rm -rf "$state"
