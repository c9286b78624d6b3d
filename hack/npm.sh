#!/bin/sh
# Usage: hack/npm.sh DIRECTORY
#
# Installs the packages that DIRECTORY/package-lock.json pins, once per user, and prints the path of their node_modules.
# It does not run scripts of packages, and sends no reports to the registry.
. "$(dirname "$0")/lib.sh"

"$root/hack/node.sh" >&2
cd "$1"
name=$(basename "$PWD")
dir=$(cache_dir)/npm/$name-$({ node --version; uname -sm; } | digest package.json package-lock.json -)
if [ ! -d "$dir/installed" ]; then
	locked "$dir"
fi
if [ ! -d "$dir/installed" ]; then # another run may have installed it since the last check
	need_disk 1 "$dir"
	rm -rf "$dir"/partial.* # left by killed runs
	mkdir "$dir/partial.$$"
	cp package.json package-lock.json "$dir/partial.$$"
	progress "installing the packages that $name pins" "about a minute the first time; later runs reuse them" \
		npm --prefix "$dir/partial.$$" ci --ignore-scripts --no-audit --no-fund --no-update-notifier ||
		fail "could not install the packages of $1/package-lock.json; check the registry (npm config get registry)"
	[ -d "$dir/installed" ] || mv "$dir/partial.$$" "$dir/installed"
fi
printf '%s\n' "$dir/installed/node_modules"
