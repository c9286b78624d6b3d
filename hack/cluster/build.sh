#!/usr/bin/env bash
# Usage: programs=$(hack/cluster/build.sh)
#
# Prints the directory with the programs of a node: kubelet and the other programs of Kubernetes, containerd, CoreDNS,
# and the programs in the images of the cluster. Results of an earlier build are reused. The sources come from the Go
# module proxy, as pinned by the modules in test/thirdparty. runc, nft and the network plugins for Pods are from Debian.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_go
modules=$root/test/thirdparty
dir=$(cache_dir)/cluster/$(go env GOOS)-$(go env GOARCH)-$(digest "$modules"/{containerd,coredns,kubernetes}/go.{mod,sum} "$here"/pause/main.go)
programs=(kubelet kube-controller-manager kube-scheduler kube-proxy containerd containerd-shim-runc-v2 ctr coredns pause)

first_missing() {
	local program
	for program in "${programs[@]}"; do
		if [[ ! -x $dir/$program ]]; then echo "$program"; return; fi
	done
}

build() { # PROGRAM DIRECTORY PACKAGE HOW-LONG [LDFLAGS [TAGS]]
	local program=$1 directory=$2 package=$3 long=$4 ldflags=${5:-} tags=${6:-}
	if [[ -x $dir/$program ]]; then return; fi
	progress "downloading the sources of $program" "" \
		go -C "$directory" list -deps -tags "$tags" -f '{{.Name}}' "$package" ||
		fail "could not download the sources of $program; can this machine reach the Go module proxy? (go env GOPROXY)"
	progress "building $program from source" "about $long on 2 cores the first time; later runs reuse it" \
		env CGO_ENABLED=0 go -C "$directory" build -trimpath -buildvcs=false -ldflags "-s -w $ldflags" -tags "$tags" -o "$dir/.tmp.$program" "$package" ||
		fail "could not build $program; the last lines of its output are above"
	mv "$dir/.tmp.$program" "$dir/$program"
}

missing=()
[[ -x /usr/sbin/runc ]] || missing+=(runc)
[[ -x /usr/lib/cni/ptp ]] || missing+=(containernetworking-plugins)
for tool in nft:nftables ip:iproute2 nsenter:util-linux openssl:openssl; do
	command -v "${tool%:*}" >/dev/null || missing+=("${tool#*:}")
done
if ((${#missing[@]} > 0)); then
	keep_services_stopped
	need_debian_packages "packages that a node needs are not installed" "${missing[@]}"
fi

if [[ -n $(first_missing) ]]; then
	locked "$dir"
	if [[ -n $(first_missing) ]]; then # another run may have built it since the last check
		need_disk 6 "$dir" "$(go env GOCACHE)" "$(go env GOMODCACHE)"
		say "building a node from source, once for all checkouts, in $dir"
	fi
	pinned() { awk -v module="$2" '{ sub(/^require /, "") } $1 == module { print substr($2, 2); exit }' "$modules/$1/go.mod"; }
	kubernetes=$(pinned kubernetes k8s.io/kubernetes)
	base=k8s.io/component-base/version
	stamp="-X $base.gitVersion=v$kubernetes -X $base.gitMajor=${kubernetes%%.*} -X $base.gitMinor=$(cut -d. -f2 <<<"$kubernetes")"
	build kube-proxy              "$modules/kubernetes" k8s.io/kubernetes/cmd/kube-proxy              "15 seconds" "$stamp"
	build kube-scheduler          "$modules/kubernetes" k8s.io/kubernetes/cmd/kube-scheduler          "10 seconds" "$stamp"
	build kube-controller-manager "$modules/kubernetes" k8s.io/kubernetes/cmd/kube-controller-manager "1 minute"   "$stamp"
	build kubelet                 "$modules/kubernetes" k8s.io/kubernetes/cmd/kubelet                 "2 minutes"  "$stamp"
	# Omit snapshotters that a single node does not need and that need more libraries.
	without="no_btrfs no_devmapper no_zfs"
	version="-X github.com/containerd/containerd/v2/version.Version=$(pinned containerd github.com/containerd/containerd/v2)"
	build containerd              "$modules/containerd" github.com/containerd/containerd/v2/cmd/containerd              "2 minutes"  "$version" "$without"
	build containerd-shim-runc-v2 "$modules/containerd" github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2 "10 seconds" "$version" "$without"
	build ctr                     "$modules/containerd" github.com/containerd/containerd/v2/cmd/ctr                     "10 seconds" "$version" "$without"
	build coredns                 "$modules/coredns"    github.com/coredns/coredns                                      "4 minutes"
	build pause                   "$here/pause"         .                                                               "1 second"
fi
echo "$dir"
