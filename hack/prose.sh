#!/usr/bin/env bash
# Usage: hack/prose.sh [FILE...]
#
# Checks documents, and the comments and messages of Go files, with Vale and the rules in hack/vale/styles. Without
# arguments, checks all of these files and the texts of alerts. Vale is built from the sources that hack/vale pins.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_go
"$root/hack/compiler.sh" # Vale's Go parser is written in C
vale=$root/bin/vale
progress "building Vale from source" "about 3 minutes on 2 cores the first time" \
	env CGO_ENABLED=1 go build -C "$root/hack/vale" -trimpath -buildvcs=false -ldflags "-s -w" -o "$vale" github.com/vale-cli/vale/v3/cmd/vale ||
	fail "could not build the Vale of hack/vale"

cd "$root"
files=("$@")
[[ $# -gt 0 ]] || mapfile -t files < <(git ls-files -- '*.md' '*.go' ':(exclude,attr:linguist-generated)' ':(exclude,glob)**/testdata/**')
messages=()
for file in "${files[@]}"; do
	case $file in
	test/* | *_test.go | hack/messages/*) ;;
	*.go) messages+=("$file") ;;
	esac
done
[[ $# -gt 0 ]] || messages+=(config/prometheus/rules.yaml)
rm -rf bin/messages # it gets a file for each source file, in which each message is on its original line
mkdir -p bin/messages
[[ ${#messages[@]} -eq 0 ]] || CGO_ENABLED=0 GOFLAGS="$(go env GOFLAGS) -trimpath" go run ./hack/messages bin/messages "${messages[@]}"
"$vale" --config=hack/vale/vale.ini --output=line "${files[@]}" bin/messages || fail "the text above does not follow CONTRIBUTING.md, \"How we write\""
