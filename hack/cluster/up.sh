#!/usr/bin/env bash
# Usage: make cluster
#
# Starts a Kubernetes of one node on this machine: kubelet, containerd and the rest, in
# namespaces and cgroups of their own, with names, a StorageClass and volumes. What was
# built is used again; hack/cluster/down.sh leaves nothing of what runs.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if running; then
	say "the node runs already: $state/kubectl get nodes"
	exit 0
fi
need_node_rights
case $state in
/run/* | /var/log/* | /var/lib/*) fail "a node has its own /run, /var/log and /var/lib: move the checkout out of there" ;;
esac
controlplane=$("$root/hack/controlplane.sh")
programs=$("$here/build.sh")
begun=$SECONDS

"$here/down.sh" # what a node that did not come up has left
mkdir -p "$state"/{certificates,etcd,flags,lib/{kubelet,containerd,cni},log,manifests,network,run,sys,tmp,volumes}
ln -s "$controlplane" "$state/controlplane"
ln -s "$programs" "$state/programs"

# Cgroups below those that this shell is in, so that what limits it limits the node.
name=keyserver-node-$(digest <(echo "$state"))
base=/sys/fs/cgroup
if [[ -e $base/cgroup.controllers ]]; then
	mkdir -p "$base/$name"
	echo "unified . $base/$name"
else
	while IFS=: read -r _ kind path; do
		[[ -n $kind && -d $base/${kind#name=} ]] || continue
		above=$base/${kind#name=}$path
		[[ -d $above ]] || above=$base/${kind#name=}
		mkdir -p "$above/$name"
		if [[ $kind == *cpuset* ]]; then
			for file in cpuset.cpus cpuset.mems; do cat "$above/$file" >"$above/$name/$file"; done
		fi
		echo "$kind ${kind#name=} $above/$name"
	done </proc/self/cgroup
fi >"$state/cgroups"

(
	exec 8>&-
	while read -r _ _ cgroup; do echo "$BASHPID" >"$cgroup/cgroup.procs"; done <"$state/cgroups"
	exec setsid --fork unshare --mount --net --uts --ipc --cgroup --pid --fork --propagation private \
		"$here/init.sh" >"$state/log/init" 2>&1 </dev/null
)
for _ in {1..600}; do
	if running; then break; fi
	sleep 0.1
done
running || fail "the node did not come up: $(tail -n 1 "$state/log/init")"

# Who everybody is: certificates, and a kubeconfig for each.
authority() { # NAME COMMON-NAME
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj "/CN=$2" -keyout "$1.key" -out "$1.crt"
}
certificate() { # NAME SUBJECT AUTHORITY [NAMES]
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "$2" -keyout "$1.key" -out "$1.csr"
	openssl x509 -req -in "$1.csr" -CA "$3.crt" -CAkey "$3.key" -CAcreateserial -days 30 -out "$1.crt" \
		-extfile <(printf 'extendedKeyUsage=serverAuth,clientAuth\n%s\n' "${4:+subjectAltName=$4}")
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
		cat >"$state/$who.conf" <<-YAML
			apiVersion: v1
			kind: Config
			current-context: node
			contexts: [{name: node, context: {cluster: node, user: $who}}]
			clusters: [{name: node, cluster: {server: "https://$node_address:6443", certificate-authority: $PWD/ca.crt}}]
			users: [{name: $who, user: {client-certificate: $PWD/$who.crt, client-key: $PWD/$who.key}}]
		YAML
		chmod 600 "$state/$who.conf"
	done
}
(certificates) >"$state/log/certificates" 2>&1
[[ -s $state/proxy.conf && -s $state/certificates/proxy.crt ]] || fail "could not make certificates: $(tail -n 1 "$state/log/certificates")"

# overlayfs does not lie on overlayfs, which is what the root of a container often is.
snapshotter=overlayfs
[[ $(stat -f -c %T "$state") != overlayfs ]] || snapshotter=native
cat >"$state/containerd.toml" <<TOML
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "$snapshotter"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "cluster.local/pause:1"
[plugins."io.containerd.cri.v1.runtime"]
  # Without CAP_SYS_RESOURCE nobody may lower it.
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "$state/network"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    snapshotter = "$snapshotter"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "/usr/sbin/runc"
TOML
cat >"$state/network/10-pods.conflist" <<JSON
{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "mtu": 1500,
 "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
JSON
echo "nameserver $dns_address" >"$state/resolv.conf"
cat >"$state/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
staticPodPath: $state/manifests
volumePluginDir: /var/lib/kubelet/volume-plugins
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $state/certificates/ca.crt}}
authorization: {mode: Webhook}
clusterDNS: [$dns_address]
clusterDomain: cluster.local
resolvConf: $state/resolv.conf
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
imageGCHighThresholdPercent: 100
YAML
cat >"$state/proxy.yaml" <<YAML
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: $state/proxy.conf}
clusterCIDR: $pods
hostnameOverride: $node_name
mode: nftables
# These are the kernel's, and no namespace's.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
YAML

cat >"$state/kubectl" <<BASH
#!/usr/bin/env bash
# kubectl, for the cluster of "make cluster": only the network is the node's.
exec nsenter --target "\$(<"$state/init.pid")" --net -- "$controlplane/kubectl" --kubeconfig "$state/admin.conf" "\$@"
BASH
cat >"$state/ctr" <<BASH
#!/usr/bin/env bash
# ctr on the node of "make cluster", as root there.
exec nsenter --target "\$(<"$state/init.pid")" --mount --net --pid --ipc --uts --cgroup --wd="\$PWD" -- "$programs/ctr" "\$@"
BASH
chmod +x "$state/kubectl" "$state/ctr"

"$here/start.sh" containerd etcd apiserver
"$here/images.sh"
"$here/start.sh" controller-manager scheduler kubelet proxy
apply() { # FILE
	sed "s|DIRECTORY|$state/volumes|; s|NODE|$node_name|; s|DNS_ADDRESS|$dns_address|" "$1" | kubectl apply -f - >>"$state/log/manifests" 2>&1
}
for file in "$here"/manifests/*.yaml; do
	await 120 "${file##*/} is applied" apply "$file" # a busy machine answers late at first
done
mkdir -p "$state"/volumes/{1,2,3}
await 120 "the node is Ready" kubectl wait --for=condition=Ready "node/$node_name" --timeout=2s
await 120 "names are answered" kubectl -n kube-system rollout status deployment/coredns --timeout=2s
say "the cluster is up, $((SECONDS - begun)) s after what it runs was there"
cat <<TEXT

    alias kubectl=$state/kubectl
    kubectl get nodes
    $state/ctr -n k8s.io images import bin/image.tar    # what "make image-ko" makes

Its logs are in $state/log; "make cluster-down" ends it, and leaves nothing.
TEXT
