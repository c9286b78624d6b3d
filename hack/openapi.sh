#!/usr/bin/env bash
# Usage: hack/openapi.sh [FILE]
#
# Holds docs/openapi.json, or FILE, against the rules of two linters from the npm
# registry: Redocly and Spectral. A warning fails, too. What is pinned in
# hack/openapi is installed once per user.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

"$root/hack/node.sh"
document=$(realpath "${1:-$root/docs/openapi.json}")
cd "$root/hack/openapi"
dir=$(cache_dir)/openapi/$(digest package.json package-lock.json <(node --version))
if [[ ! -d $dir/linters ]]; then
	locked "$dir"
fi
if [[ ! -d $dir/linters ]]; then # another run may have installed it meanwhile
	need_disk 1 "$dir"
	rm -rf "$dir"/partial.* # of runs that were killed
	mkdir "$dir/partial.$$"
	cp package.json package-lock.json "$dir/partial.$$"
	# No script of a package is run, and nothing is reported to the registry.
	progress "installing the linters of the OpenAPI document" "about a minute the first time; later runs reuse them" \
		npm --prefix "$dir/partial.$$" ci --ignore-scripts --no-audit --no-fund --no-update-notifier ||
		fail "could not install what hack/openapi/package-lock.json pins; see 'npm config get registry'"
	[[ -d $dir/linters ]] || mv "$dir/partial.$$" "$dir/linters"
fi

# Neither asks for a newer version of itself, nor tells anybody that it ran.
export REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true
status=0
lint() { # NAME COMMAND...
	local said
	if ! said=$("${@:2}" 2>&1); then
		printf '%s\n' "$said" >&2
		say "$1 found the above in ${document#"$root"/}"
		status=1
	fi
}
lint Redocly "$dir/linters/node_modules/.bin/redocly" lint --config redocly.yaml --format stylish "$document"
lint Spectral "$dir/linters/node_modules/.bin/spectral" lint --ruleset spectral.yaml --fail-severity hint --quiet "$document"
exit "$status"
