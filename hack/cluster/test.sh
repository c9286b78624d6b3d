#!/usr/bin/env bash
# Usage: make test-cluster (TEST_FLAGS=...), make smoke-cluster
#
# Starts a node, imports the images of the product and of a workload, runs test/cluster with it, and stops the node. If
# a node is already running, the script uses it and does not stop it.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if running; then
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
else
	(need_node_rights) || fail "test-cluster was NOT RUN"
	work=$(mktemp -d)
	trap 'rm -rf "$work"; "$here/down.sh"' EXIT
	"$here/up.sh" >&2
fi

# The same command as in docs/install.md.
make -C "$root" image-ko IMAGE=registry.example/keyserver-operator:v0.1.0
for archive in image image-agent; do
	"$state/ctr" -n k8s.io images import "$root/bin/$archive.tar"
done

# Provides curl and jq for the workload, Helm, and the other programs that the tests need.
tags=cluster${SMOKE:+,smoke} # without the tests that need the built program
environment=$(GOFLAGS="$(go env GOFLAGS) -tags=$tags" "$root/hack/provide.sh" ./test/cluster)
eval "$environment"

# The image of the workload contains this machine's shell and curl with their libraries, and a program that sends
# requests without pauses.
mkdir -p "$work"/workload/{usr/bin,tmp}
ln -s usr/bin "$work/workload/bin"
program_into "$work/workload" bash curl jq base64 cat sed sleep tr
ln -s bash "$work/workload/usr/bin/sh"
(cd "$root" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$work/workload/usr/bin/asks" ./test/cluster/asks)
"$here/image.sh" registry.example/workload:1 "$work/workload" '{"Cmd":["sleep","infinity"],"Env":["PATH=/usr/bin"],"User":"65532:65532"}'
"$state/ctr" -n k8s.io images tag --force registry.example/workload:1 docker.io/curlimages/curl:8.17.0 # the Pod of config/samples/workload

if [[ -z ${SMOKE:-} ]]; then # the smoke test does not need these
	"$here/postgres.sh"

	prometheus=$("$root/hack/prometheus.sh")
	mkdir -p "$work/prometheus/usr/bin"
	cp "$prometheus" "$work/prometheus/usr/bin/"
	"$here/image.sh" registry.example/prometheus:1 "$work/prometheus" '{"Entrypoint":["/usr/bin/prometheus"],"User":"65532:65532"}'

	"$root/test/thirdparty/flux/build.sh" "$root/bin/test/flux"
	"$root/test/thirdparty/argocd/build.sh" "$root/bin/test/argocd"
fi

# The tests run in the network namespace of the node, where Services are reachable.
cd "$root"
RIG_CLUSTER=$state RIG_FLUX=$root/bin/test/flux RIG_ARGOCD=$root/bin/test/argocd go test -tags "$tags" -count=1 -v -timeout 60m \
	-exec "nsenter --target $(<"$state/init.pid") --net --" "$@" ./test/cluster
