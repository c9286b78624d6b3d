#!/bin/sh
# Usage: hack/console.sh [--if-possible]
#
# Builds the web console into internal/server/console/dist, where Go embeds it, unless it is already built. With
# --if-possible, a missing or too old Node.js is not an error: the binary then has no console, and returns an error if a
# user requests the console.
. "$(dirname "$0")/lib.sh"

dist=$root/internal/server/console/dist
cd "$root"

can() { command -v npm >/dev/null && node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 22 || a === 22 && b >= 12 || a === 20 && b >= 19 ? 0 : 1)' 2>/dev/null; }
if ! can; then
	[ "${1:-}" != --if-possible ] || { say "building without the web console, because it requires npm and Node.js 20.19 or 22.12 or newer"; exit 0; }
	hack/node.sh
	can || fail "the web console requires Node.js 20.19 or 22.12 or newer, but this is $(node --version); install a newer one"
fi

sources=$(find console clients/typescript/src -name node_modules -prune -o -name dist -prune -o -type f -print | LC_ALL=C sort)
# shellcheck disable=SC2086 # no name has a space
built=$(printf '%s\n' "$sources" | digest $sources -)
if [ -f "$dist/index.html" ] && [ "$(cat "$dist/.built" 2>/dev/null)" = "$built" ]; then exit 0; fi

modules=$(hack/npm.sh console)
locked "$(cache_dir)/console"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -R console "$work/console"
rm -rf "$work/console/node_modules"
ln -s "$modules" "$work/console/node_modules"
mkdir -p "$work/clients/typescript"
cp -R clients/typescript/src "$work/clients/typescript/src"
build() { cd "$work/console" && node_modules/.bin/tsc -p . && node_modules/.bin/vite build --logLevel warn; }
progress "building the web console" "" build || fail "could not build the web console; the cause is above"
rm -rf "$dist"/* "$dist/.built" # keeps .gitkeep
cp -R "$work/console/dist/." "$dist"
printf '%s\n' "$built" >"$dist/.built"
