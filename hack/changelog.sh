#!/usr/bin/env bash
# Usage: hack/changelog.sh VERSION
#
# Prints the section of a release in CHANGELOG.md without its heading: the text
# of the release announcement.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

(($# == 1)) || fail "usage: hack/changelog.sh VERSION; example: hack/changelog.sh 0.1.0"
section=$(awk -v heading="## [$1] " '
	index($0, heading) == 1 { inside = 1; next }
	/^## / || /^\[[^]]+\]: / { inside = 0 }
	inside
' "$root/CHANGELOG.md")
[[ -n ${section//[[:space:]]/} ]] || fail "CHANGELOG.md has no section for the version \"$1\""
printf '%s\n' "$section"
