#!/bin/sh
# Usage: hack/npm.sh DIRECTORY
#
# Installs what DIRECTORY/package-lock.json pins, once per user, and prints the path
# of its node_modules. No script of a package is run, and nothing is reported to the
# registry.
. "$(dirname "$0")/lib.sh"

"$root/hack/node.sh" >&2
cd "$1"
name=$(basename "$PWD")
dir=$(cache_dir)/npm/$name-$({ node --version; uname -sm; } | digest package.json package-lock.json -)
if [ ! -d "$dir/installed" ]; then
	locked "$dir"
fi
if [ ! -d "$dir/installed" ]; then # another run may have installed it meanwhile
	need_disk 1 "$dir"
	rm -rf "$dir"/partial.* # of runs that were killed
	mkdir "$dir/partial.$$"
	cp package.json package-lock.json "$dir/partial.$$"
	progress "installing the packages that $name pins" "about a minute the first time; later runs reuse them" \
		npm --prefix "$dir/partial.$$" ci --ignore-scripts --no-audit --no-fund --no-update-notifier ||
		fail "could not install what $1/package-lock.json pins; see 'npm config get registry'"
	[ -d "$dir/installed" ] || mv "$dir/partial.$$" "$dir/installed"
fi
printf '%s\n' "$dir/installed/node_modules"
