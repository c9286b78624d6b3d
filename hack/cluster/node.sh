#!/usr/bin/env bash
# Creates the first node, or the second node with NODE=second: its namespaces and cgroups with a first process, and the
# configuration of kubelet, containerd and kube-proxy.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

(($# == 2)) || fail "usage: hack/cluster/node.sh CONTROLPLANE PROGRAMS; both are directories"
mkdir -p "$state"/{flags,lib/{kubelet,containerd,cni},log,manifests,network,run,sys,tmp,volumes}
ln -s "$1" "$state/controlplane"
ln -s "$2" "$state/programs"
programs=$2

# The cgroups are below the cgroups of this shell, so that the limits of the shell also apply to the node.
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
running || fail "the $NODE node did not start: $(tail -n 1 "$state/log/init")"

# overlayfs does not work on top of overlayfs, which is often the root file system of a container.
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
 "ipam": {"type": "host-local", "ranges": [[{"subnet": "$node_pods"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
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
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $cluster/certificates/ca.crt}}
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
clientConnection: {kubeconfig: $cluster/proxy.conf}
clusterCIDR: $pods
hostnameOverride: $node_name
mode: nftables
# These are the kernel's, and no namespace's.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
YAML

cat >"$state/ctr" <<BASH
#!/usr/bin/env bash
# ctr on the $NODE node of "make cluster", as root there.
exec nsenter --target "\$(<"$state/init.pid")" --mount --net --pid --ipc --uts --cgroup --wd="\$PWD" -- "$programs/ctr" "\$@"
BASH
chmod +x "$state/ctr"
