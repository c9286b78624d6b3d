#!/usr/bin/env bash
# Usage: hack/site.sh [DIRECTORY]
#
# Builds a website from docs/ into a directory for its release in DIRECTORY (default: bin/site). Existing releases there
# are kept. versions.json lists all releases.
#
# SITE_VERSION     the release; by default the tag of this commit, otherwise "main"
# SITE_BASE        the URL path of DIRECTORY (/)
# SITE_DOCS        the documents (docs)
# SITE_REPOSITORY  the target of links to files outside of docs/; by default the module's name
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

"$root/hack/node.sh" >&2
out=${1:-$root/bin/site}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$root"

revision=$(git describe --tags --match 'v[0-9]*' --always --dirty 2>/dev/null || echo unknown)
if [[ -z ${SITE_VERSION:-} ]]; then
	SITE_VERSION=main
	[[ ! $revision =~ ^v[0-9]+\.[0-9]+\.[0-9]+$ ]] || SITE_VERSION=$revision
fi
[[ $SITE_VERSION =~ ^(main|v[0-9]+\.[0-9]+\.[0-9]+)$ ]] || fail "SITE_VERSION: \"$SITE_VERSION\" is not valid; it must be main or a release vX.Y.Z"
SITE_BASE=${SITE_BASE:-/}
[[ $SITE_BASE =~ ^/([A-Za-z0-9._~-]+/)*$ ]] || fail "SITE_BASE: \"$SITE_BASE\" is not valid; it must be a URL path that begins and ends with /"
SITE_REPOSITORY=${SITE_REPOSITORY:-https://$(awk '$1 == "module" { print $2 }' go.mod)}
export SITE_VERSION SITE_BASE SITE_REPOSITORY SITE_REF=$SITE_VERSION SITE_REVISION=$revision SITE_CHECKOUT=$root

modules=$(hack/npm.sh site)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/site"
cp -R "${SITE_DOCS:-docs}" "$work/docs"
cp -R site/.vitepress site/package.json "$work/site"
ln -s "$modules" "$work/node_modules"
# No stack traces: only the end of the log is shown, and a stack trace there would hide the error.
build() { cd "$work" && node --stack-trace-limit=0 node_modules/vitepress/bin/vitepress.js build site; }
progress "building the site of $SITE_VERSION" "" build || fail "could not build the site; the cause is above"

rm -rf "${out:?}/$SITE_VERSION"
cp -R "$work/site/dist" "$out/$SITE_VERSION"

# Newest first. The first page is the page of the newest release, or of main if there is no release.
mapfile -t versions < <(cd "$out" && for page in */index.html; do printf '%s\n' "${page%/index.html}"; done | sort -Vr)
first=${versions[0]}
for version in "${versions[@]}"; do
	if [[ $version == v* ]]; then first=$version; break; fi
done
printf '{"versions": [%s]}\n' "$(printf ', "%s"' "${versions[@]}" | cut -c3-)" >"$out/versions.json"
printf '<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n<title>keyserver-operator</title>\n<link rel="icon" href="data:,">\n<meta http-equiv="refresh" content="0; url=%s/">\n<p><a href="%s/">keyserver-operator %s</a></p>\n</html>\n' \
	"$first" "$first" "$first" >"$out/index.html"
say "the site of $SITE_VERSION is in $out/$SITE_VERSION"
