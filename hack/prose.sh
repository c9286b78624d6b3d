#!/usr/bin/env bash
# Usage: hack/prose.sh [FILE...]
#
# Checks documents and the comments of Go files (all of them by default) with Vale, by the rules in
# hack/vale/styles. Vale is built from the sources that hack/vale pins.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_go
"$root/hack/compiler.sh" # Vale's parser of Go is written in C
vale=$root/bin/vale
progress "building Vale from source" "about 3 minutes on 2 cores the first time" \
	env CGO_ENABLED=1 go build -C "$root/hack/vale" -trimpath -buildvcs=false -ldflags "-s -w" -o "$vale" github.com/vale-cli/vale/v3/cmd/vale ||
	fail "could not build the Vale of hack/vale"

cd "$root"
files=("$@")
[[ $# -gt 0 ]] || mapfile -t files < <(git ls-files -- '*.md' '*.go' ':(exclude,attr:linguist-generated)' ':(exclude,glob)**/testdata/**')
"$vale" --config=hack/vale/vale.ini --output=line "${files[@]}" || fail "the text above does not follow CONTRIBUTING.md, \"How we write\""
