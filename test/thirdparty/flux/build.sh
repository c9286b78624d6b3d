#!/usr/bin/env bash
# Usage: test/thirdparty/flux/build.sh DIRECTORY
#
# Builds the controllers of Flux into DIRECTORY, in the versions of the modules next to this file, and copies the CRDs
# of each module there, as NAME.yaml.
source "$(dirname "${BASH_SOURCE[0]}")/../../../hack/lib.sh"

need_go
(($# == 1)) || fail "usage: test/thirdparty/flux/build.sh DIRECTORY"
mkdir -p "$1"
directory=$(cd "$1" && pwd)
for controller in source-controller kustomize-controller helm-controller; do
	module=$root/test/thirdparty/flux/$controller
	progress "building Flux's $controller from source" "about 3 minutes on 2 cores the first time" \
		env CGO_ENABLED=0 go build -C "$module" -trimpath -buildvcs=false -ldflags "-s -w" -o "$directory/$controller" "github.com/fluxcd/$controller" ||
		fail "could not build the $controller of test/thirdparty/flux"
	definitions=$(go -C "$module" list -m -f '{{.Dir}}' "github.com/fluxcd/$controller")
	awk 'FNR == 1 { print "---" } { print }' "$definitions"/config/crd/bases/*.yaml >"$directory/$controller.yaml"
done
