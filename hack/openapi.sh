#!/usr/bin/env bash
# Usage: hack/openapi.sh [FILE]
#
# Checks docs/openapi.json, or FILE, with two linters from the npm registry:
# Redocly and Spectral. A warning is a failure, too.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

document=$(realpath "${1:-$root/docs/openapi.json}")
cd "$root/hack/openapi"
linters=$("$root/hack/npm.sh" .)/.bin

# Disable the check for a newer version and telemetry.
export REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true
status=0
lint() { # NAME COMMAND...
	local said
	if ! said=$("${@:2}" 2>&1); then
		printf '%s\n' "$said" >&2
		say "$1 found the errors above in ${document#"$root"/}"
		status=1
	fi
}
lint Redocly "$linters/redocly" lint --config redocly.yaml --format stylish "$document"
lint Spectral "$linters/spectral" lint --ruleset spectral.yaml --fail-severity hint --quiet "$document"
exit "$status"
