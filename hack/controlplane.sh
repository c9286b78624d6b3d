#!/bin/sh
# Usage: KUBEBUILDER_ASSETS=$(hack/controlplane.sh)
#
# Prints the directory with kube-apiserver, etcd and kubectl, and links it as
# bin/k8s. The first of these that applies:
#   1. KUBEBUILDER_ASSETS, if it is set;
#   2. the result of an earlier build;
#   3. setup-envtest, if it is on PATH and can provide them;
#   4. a build of the sources pinned in test/thirdparty/controlplane, from the
#      Go module proxy: no download of binaries, no Docker.
. "$(dirname "$0")/lib.sh"

first_missing() { # DIR
	local binary
	for binary in etcd kube-apiserver kubectl; do
		if [ ! -x "$1/$binary" ]; then echo "$binary"; return; fi
	done
}

answer() { # DIR
	mkdir -p "$root/bin"
	ln -sfn "$1" "$root/bin/k8s"
	echo "$1"
	exit 0
}

if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
	missing=$(first_missing "$KUBEBUILDER_ASSETS")
	[ -z "$missing" ] || fail "KUBEBUILDER_ASSETS: \"$KUBEBUILDER_ASSETS\" contains no $missing; correct it, or unset it to build the control plane"
	answer "$(cd "$KUBEBUILDER_ASSETS" && pwd)"
fi

need_go
cd "$root/test/thirdparty/controlplane"
pinned() { awk -v module="$1" '$1 == module { print substr($2, 2); exit }' go.mod; }
kubernetes=$(pinned k8s.io/kubernetes)
etcd=$(pinned go.etcd.io/etcd/server/v3)

dir=$(cache_dir)/k8s/$kubernetes-$(go env GOOS)-$(go env GOARCH)-$(digest go.mod go.sum)
[ -n "$(first_missing "$dir")" ] || answer "$dir"

if command -v setup-envtest >/dev/null; then
	for installed in true false; do # an installed setup-envtest needs no network
		assets=$(timeout 180 setup-envtest use --installed-only=$installed -p path "${kubernetes%.*}.x" 2>/dev/null) || continue
		[ -n "$(first_missing "$assets")" ] || answer "$assets"
	done
	say "setup-envtest has no control plane for Kubernetes ${kubernetes%.*}; building one"
fi

locked "$dir"
if [ -n "$(first_missing "$dir")" ]; then # another run may have built it since the last check
	need_disk 5 "$dir" "$(go env GOCACHE)" "$(go env GOMODCACHE)"
	say "building a local control plane from source, once for all checkouts: etcd $etcd and Kubernetes $kubernetes, in $dir"
fi

build() { # BINARY PACKAGE VERSION HOW-LONG [LDFLAGS]
	local binary="$1" package="$2" version="$3" long="$4" ldflags="${5:-}"
	if [ -x "$dir/$binary" ]; then return; fi
	progress "downloading the sources of $binary $version" "" \
		go list -deps -f '{{.Name}}' "$package" ||
		fail "could not download the sources of $binary; can this machine reach the Go module proxy? (go env GOPROXY)"
	progress "building $binary $version from source" "about $long on 2 cores the first time; later runs reuse it" \
		env CGO_ENABLED=0 go build -trimpath -ldflags "-s -w $ldflags" -o "$dir/.tmp.$binary" "$package" ||
		fail "could not build $binary; the last lines of its output are above"
	mv "$dir/.tmp.$binary" "$dir/$binary"
}

# Kubernetes gets its version from the linker. Without a version, it does not serve requests.
base=k8s.io/component-base/version
stamp="-X $base.gitVersion=v$kubernetes -X $base.gitMajor=${kubernetes%%.*} -X $base.gitMinor=$(echo "$kubernetes" | cut -d. -f2)"
build etcd           go.etcd.io/etcd/server/v3            "$etcd"       "1 minute"
build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver "$kubernetes" "3 minutes" "$stamp"
build kubectl        k8s.io/kubernetes/cmd/kubectl        "$kubernetes" "20 seconds" "$stamp"
answer "$dir"
