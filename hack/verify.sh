#!/usr/bin/env bash
# Usage: make verify
#
# Fails if generated, formatted or tidied files are outdated, and prints the commands that update them. Also fails if
# actionlint, a linter of the OpenAPI document, or the type check for macOS or Windows finds an error, or if the first
# line of a commit violates CONTRIBUTING.md. It works on a copy and never changes the checkout.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_go
cd "$root"
fixes=()
stale() { # WHAT FIX
	say "STALE: $1"
	fixes+=("$2")
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say "generated files"
mkdir "$work/before" "$work/after"
tar -c --exclude=./bin --exclude=./.git --exclude=./.keyserver . | tar -x -C "$work/before"
cp -R "$work/before/." "$work/after"
ln -s "$root/bin" "$work/after/bin" # contains the tools that make has just built
make -s -C "$work/after" generate manifests >&2 ||
	fail "could not generate the files; the cause is above"
rm "$work/after/bin"
if ! (cd "$work" && diff -ruN before after) >&2; then
	stale "the files above differ from the generated ones" "make generate manifests"
fi

for module in $(find . -name go.mod -not -path './bin/*' | sort); do
	directory=$(dirname "$module")
	say "go mod tidy in $directory"
	(cd "$directory" && go mod tidy -diff) >&2 ||
		stale "$module or its go.sum" "go -C $directory mod tidy"
done

say "gofmt"
unformatted=$(gofmt -l .)
[[ -z $unformatted ]] || stale "not formatted: ${unformatted//$'\n'/ }" "gofmt -w ${unformatted//$'\n'/ }"

say "first lines of commits"
hack/subjects.sh || fail "the reason is above"

say "workflows"
# Disable its optional linters, because these are not installed on every machine.
"$root/bin/actionlint" -shellcheck= -pyflakes= .github/workflows/*.yml >&2 || fail "actionlint found the errors above; correct the workflows by hand"

say "linters of the OpenAPI document"
hack/openapi.sh ||
	fail "docs/openapi.json: linters found the errors above; correct the routes in httpapi and their types in clients/go/schema, and run 'make generate'"

say "other platforms"
hack/cross.sh || fail "the code does not compile for another platform; the cause is above"

if ((${#fixes[@]} > 0)); then
	printf '\nmake verify failed. To fix it, run:\n' >&2
	printf '    %s\n' "${fixes[@]}" >&2
	exit 1
fi
say "generated files, formatting and go.mod files are up to date; the OpenAPI document passes its linters; the code compiles for the other platforms"
