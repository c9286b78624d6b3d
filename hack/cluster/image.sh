#!/usr/bin/env bash
# Usage: hack/cluster/image.sh NAME DIRECTORY CONFIGURATION
#
# Imports a directory as an image with one layer into the node. CONFIGURATION is the JSON value "config" of the image
# specification.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_running
(($# == 3)) || fail "usage: hack/cluster/image.sh NAME DIRECTORY CONFIGURATION"
work=$(mktemp -d -p "$state/tmp")
trap 'rm -rf "$work"' EXIT
tar --directory "$2" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$work/layer.tar" .
layer=$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
architecture=$(go env GOARCH)
echo '{"architecture":"'"$architecture"'","os":"linux","config":'"$3"',"rootfs":{"type":"layers","diff_ids":["sha256:'"$layer"'"]}}' >"$work/config.json"
echo '[{"Config":"config.json","RepoTags":["'"$1"'"],"Layers":["layer.tar"]}]' >"$work/manifest.json"
tar --directory "$work" -cf "$work/image.tar" manifest.json config.json layer.tar
"$state/ctr" -n k8s.io images import "$work/image.tar" >"$state/log/images" 2>&1 ||
	fail "containerd could not import the image $1: $(tail -n 1 "$state/log/images")"
