#!/usr/bin/env bash
# Usage: hack/cluster/second.sh
#
# Adds a second node to the cluster of "make cluster". It has its own namespaces and cgroups, and a network connection
# to the first node. It gets the current images of the first node, and no volumes. It ends with the first node or with
# NODE=second hack/cluster/down.sh.
NODE=second
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

(NODE=first && source "$here/lib.sh" && need_running)
if running; then
	say "the second node is already running"
	exit 0
fi
"$here/down.sh" # remains of a failed start
first=$(<"$cluster/init.pid")
"$here/node.sh" "$(readlink "$cluster/controlplane")" "$(readlink "$cluster/programs")"
second=$(<"$state/init.pid")

# The network connection. The first node routes the address of the second node and its Pod range through it.
on() { nsenter --target "$1" --net -- "${@:2}"; }
on "$first" ip link add second0 type veth peer name node0 netns "/proc/$second/ns/net"
on "$second" ip address add "$node_address/24" dev node0
on "$second" ip link set node0 up
on "$second" ip route add default via "$apiserver_address"
on "$first" ip link set second0 up
on "$first" ip route add "$node_address" dev second0 src "$apiserver_address"
on "$first" ip route add "$node_pods" via "$node_address" dev second0

(
	cd "$cluster/certificates"
	certificate kubelet-second "/O=system:nodes/CN=system:node:$node_name" ca
) >"$state/log/certificates" 2>&1 || fail "could not create a certificate: $(tail -n 1 "$state/log/certificates")"
kubeconfig kubelet-second "$state/kubelet.conf"

"$here/start.sh" containerd
mapfile -t images < <("$cluster/ctr" -n k8s.io images ls -q 2>/dev/null | grep -v '^sha256:')
"$cluster/ctr" -n k8s.io images export - "${images[@]}" 2>"$state/log/images" |
	"$state/ctr" -n k8s.io images import - >>"$state/log/images" 2>&1 ||
	fail "containerd could not import the images of the first node: $(tail -n 1 "$state/log/images")"
"$here/start.sh" kubelet proxy
await 120 "waiting for the second node to be Ready" kubectl wait --for=condition=Ready "node/$node_name" --timeout=2s
say "the second node has joined"
