#!/usr/bin/env bash
# Usage: hack/openapi.sh [FILE]
#
# Holds docs/openapi.json, or FILE, against the rules of two linters from the npm
# registry: Redocly and Spectral. A warning fails, too.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

document=$(realpath "${1:-$root/docs/openapi.json}")
cd "$root/hack/openapi"
linters=$("$root/hack/npm.sh" .)/.bin

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
lint Redocly "$linters/redocly" lint --config redocly.yaml --format stylish "$document"
lint Spectral "$linters/spectral" lint --ruleset spectral.yaml --fail-severity hint --quiet "$document"
exit "$status"
