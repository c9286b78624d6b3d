#!/usr/bin/env bash
# Usage: hack/cluster/start.sh COMPONENT...
#
# Starts components of the node, each when the previous one is ready: containerd, etcd, apiserver, controller-manager,
# scheduler, kubelet, proxy. A test can add flags for a component as lines of the file flags/COMPONENT.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_running
certificates=$cluster/certificates

start() { # COMPONENT COMMAND...
	local component=$1 more=(); shift
	[[ ! -e $state/flags/$component ]] || mapfile -t more <"$state/flags/$component"
	# nsenter joins no cgroup, so the new process joins the cgroup itself.
	# shellcheck disable=SC2016 # for the shell on the node
	setsid --fork nsenter --target "$(<"$state/init.pid")" --mount --net --pid --ipc --uts --cgroup --wd=/ -- \
		env PATH="$state/programs:/usr/sbin:/usr/bin:/sbin:/bin" TMPDIR="$state/tmp" bash -c '
			for cgroup in /sys/fs/cgroup/node /sys/fs/cgroup/*/; do
				if [[ -e $cgroup/cgroup.procs ]]; then echo 0 >"$cgroup/cgroup.procs"; fi
				if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then break; fi
			done
			echo $$ >"$1"; shift; exec "$@"' - "$state/run/$component" "$@" "${more[@]}" >>"$state/log/$component" 2>&1 </dev/null 8>&-
}

for component in "$@"; do
	case $component in
	containerd)
		start containerd "$state/programs/containerd" --config "$state/containerd.toml"
		await 60 "waiting for containerd" inside "$state/programs/ctr" --timeout 2s version
		;;
	etcd) # its data may be lost in a power failure
		start etcd "$state/controlplane/etcd" --data-dir="$state/etcd" --unsafe-no-fsync \
			--listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379 \
			--listen-peer-urls=http://127.0.0.1:2380 --initial-advertise-peer-urls=http://127.0.0.1:2380 --initial-cluster=default=http://127.0.0.1:2380
		;;
	apiserver)
		start apiserver "$state/controlplane/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 \
			--advertise-address="$node_address" --secure-port=6443 --service-cluster-ip-range="$services" \
			--tls-cert-file="$certificates/apiserver.crt" --tls-private-key-file="$certificates/apiserver.key" --client-ca-file="$certificates/ca.crt" \
			--service-account-issuer=https://kubernetes.default.svc.cluster.local \
			--service-account-key-file="$certificates/accounts.pub" --service-account-signing-key-file="$certificates/accounts.key" \
			--kubelet-client-certificate="$certificates/apiserver-to-kubelet.crt" --kubelet-client-key="$certificates/apiserver-to-kubelet.key" \
			--kubelet-preferred-address-types=InternalIP \
			--requestheader-client-ca-file="$certificates/front-ca.crt" --requestheader-allowed-names=front-proxy \
			--requestheader-extra-headers-prefix=X-Remote-Extra- --requestheader-group-headers=X-Remote-Group --requestheader-username-headers=X-Remote-User \
			--proxy-client-cert-file="$certificates/front.crt" --proxy-client-key-file="$certificates/front.key" \
			--authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction
		await 300 "waiting for kube-apiserver" kubectl get --raw /readyz
		;;
	controller-manager)
		start controller-manager "$state/programs/kube-controller-manager" --kubeconfig="$state/controller-manager.conf" \
			--authentication-kubeconfig="$state/controller-manager.conf" --authorization-kubeconfig="$state/controller-manager.conf" \
			--allocate-node-cidrs --cluster-cidr="$pods" --service-cluster-ip-range="$services" --use-service-account-credentials \
			--root-ca-file="$certificates/ca.crt" --service-account-private-key-file="$certificates/accounts.key" \
			--cluster-signing-cert-file="$certificates/ca.crt" --cluster-signing-key-file="$certificates/ca.key" --leader-elect=false
		;;
	scheduler)
		start scheduler "$state/programs/kube-scheduler" --kubeconfig="$state/scheduler.conf" \
			--authentication-kubeconfig="$state/scheduler.conf" --authorization-kubeconfig="$state/scheduler.conf" --leader-elect=false
		;;
	kubelet)
		start kubelet "$state/programs/kubelet" --config="$state/kubelet.yaml" --kubeconfig="$state/kubelet.conf" \
			--hostname-override="$node_name" --node-ip="$node_address"
		;;
	proxy) start proxy "$state/programs/kube-proxy" --config="$state/proxy.yaml" ;;
	*) fail "\"$component\" is not a component; hack/cluster/start.sh lists them" ;;
	esac
done
