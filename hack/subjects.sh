#!/bin/sh
# Usage: hack/subjects.sh [REVISION...]
#
# Checks the first lines of the commits since the last release, or since this script was added if that is later.
# REVISION has the syntax of git log. For the rules, see "Commits" in CONTRIBUTING.md.
. "$(dirname "$0")/lib.sh"

cd "$root"
if [ $# -eq 0 ]; then
	added=$(git log --diff-filter=A --format=%H -- hack/subjects.sh 2>/dev/null | tail -n 1)
	[ -n "$added" ] || { say "there is no history to check"; exit 0; }
	set -- HEAD "^$added"
	release=$(git describe --tags --match 'v[0-9]*' --abbrev=0 2>/dev/null) && set -- "$@" "^$release"
fi
wrong=$(git log --no-merges --format=%s "$@" | awk '
	length > 72 { print "longer than 72 characters: " $0; next }
	!/^[a-z0-9][a-z0-9.\/_-]*: [^ ].*[^.]$/ { print "not \"area: imperative summary\": " $0 }')
[ -z "$wrong" ] || fail "the first lines of these commits are wrong; reword them with git rebase:
$wrong"
