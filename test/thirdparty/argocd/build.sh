#!/usr/bin/env bash
# Usage: test/thirdparty/argocd/build.sh DIRECTORY
#
# Builds Argo CD and its kustomize into DIRECTORY, in the versions of the module next to this file, and copies the CRDs
# of Argo CD there. Argo CD uses Debian's Redis.
source "$(dirname "${BASH_SOURCE[0]}")/../../../hack/lib.sh"

need_go
(($# == 1)) || fail "usage: test/thirdparty/argocd/build.sh DIRECTORY"
mkdir -p "$1"
directory=$(cd "$1" && pwd)
module=$root/test/thirdparty/argocd

build() { # NAME PACKAGE
	progress "building $1 from source" "Argo CD takes about 3 minutes on 2 cores the first time" \
		env CGO_ENABLED=0 go build -C "$module" -trimpath -buildvcs=false -ldflags "-s -w" -o "$directory/$1" "$2" ||
		fail "could not build the $1 of test/thirdparty/argocd"
}
build argocd github.com/argoproj/argo-cd/v3/cmd
build kustomize sigs.k8s.io/kustomize/kustomize/v5
definitions=$(go -C "$module" list -m -f '{{.Dir}}' github.com/argoproj/argo-cd/v3)
for kind in application appproject; do
	install -m 644 "$definitions/manifests/crds/$kind-crd.yaml" "$directory/$kind.yaml"
done

if ! command -v redis-server >/dev/null; then
	keep_services_stopped
	need_debian_packages "Redis is not installed, and Argo CD needs it" redis-server
fi
ln -sf "$(command -v redis-server)" "$directory/redis-server"
