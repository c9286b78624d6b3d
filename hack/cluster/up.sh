#!/usr/bin/env bash
# Usage: make cluster
#
# Starts Kubernetes with one node on this machine: kubelet, containerd and all other components, in separate namespaces
# and cgroups, with DNS, a StorageClass and volumes. Earlier builds are reused. hack/cluster/down.sh stops everything.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if running; then
	say "the node is already running; to see it, run: $state/kubectl get nodes"
	exit 0
fi
need_node_rights
case $state in
/run/* | /var/log/* | /var/lib/*) fail "the checkout is in a directory that a node replaces (/run, /var/log, /var/lib); move it" ;;
esac
controlplane=$("$root/hack/controlplane.sh")
programs=$("$here/build.sh")
begun=$SECONDS

"$here/down.sh" # remains of a failed start
"$here/node.sh" "$controlplane" "$programs"
mkdir -p "$state"/{certificates,etcd}

# The identities of all components: a certificate and a kubeconfig for each.
authority() { # NAME COMMON-NAME
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj "/CN=$2" -keyout "$1.key" -out "$1.crt"
}
certificates() {
	cd "$state/certificates"
	authority ca cluster
	authority front-ca front-proxy
	openssl genrsa -out accounts.key 2048
	openssl rsa -in accounts.key -pubout -out accounts.pub
	certificate apiserver /CN=kube-apiserver ca "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,IP:${services%.*}.1,IP:$node_address"
	certificate apiserver-to-kubelet /O=system:masters/CN=kube-apiserver ca
	certificate front /CN=front-proxy front-ca
	certificate admin /O=system:masters/CN=admin ca
	certificate kubelet "/O=system:nodes/CN=system:node:$node_name" ca
	certificate controller-manager /CN=system:kube-controller-manager ca
	certificate scheduler /CN=system:kube-scheduler ca
	certificate proxy /CN=system:kube-proxy ca
	local who
	for who in admin kubelet controller-manager scheduler proxy; do
		kubeconfig "$who" "$state/$who.conf"
	done
}
(certificates) >"$state/log/certificates" 2>&1
[[ -s $state/proxy.conf && -s $state/certificates/proxy.crt ]] || fail "could not create certificates: $(tail -n 1 "$state/log/certificates")"

cat >"$state/kubectl" <<BASH
#!/usr/bin/env bash
# kubectl, for the cluster of "make cluster": only the network is the node's.
exec nsenter --target "\$(<"$state/init.pid")" --net -- "$controlplane/kubectl" --kubeconfig "$state/admin.conf" "\$@"
BASH
chmod +x "$state/kubectl"

"$here/start.sh" containerd etcd apiserver
"$here/images.sh"
"$here/start.sh" controller-manager scheduler kubelet proxy
apply() { # FILE
	sed "s|DIRECTORY|$state/volumes|; s|NODE|$node_name|; s|DNS_ADDRESS|$dns_address|" "$1" | kubectl apply -f - >>"$state/log/manifests" 2>&1
}
for file in "$here"/manifests/*.yaml; do
	await 120 "applying ${file##*/}" apply "$file" # a busy machine responds slowly at first
done
mkdir -p "$state"/volumes/{1,2,3}
await 120 "waiting for the node to be Ready" kubectl wait --for=condition=Ready "node/$node_name" --timeout=2s
await 120 "waiting for DNS" kubectl -n kube-system rollout status deployment/coredns --timeout=2s
say "the cluster is ready; it started in $((SECONDS - begun)) s"
cat <<TEXT

    alias kubectl=$state/kubectl
    kubectl get nodes
    $state/ctr -n k8s.io images import bin/image.tar    # and bin/image-agent.tar; "make image-ko" builds both

The logs are in $state/log. "make cluster-down" ends the cluster and removes its files.
TEXT
