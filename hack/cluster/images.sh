#!/usr/bin/env bash
# Creates the images that the cluster itself needs, and imports them into the node.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_running
work=$(mktemp -d -p "$state/tmp")
trap 'rm -rf "$work"' EXIT
for program in pause coredns; do
	mkdir "$work/$program"
	cp "$state/programs/$program" "$work/$program/"
	"$here/image.sh" "cluster.local/$program:1" "$work/$program" '{"Entrypoint":["/'"$program"'"],"User":"65532:65532"}'
done
