#!/usr/bin/env bash
# Usage: hack/krew.sh VERSION DIRECTORY
#
# Puts the binaries of a release, which stand in the directory, into the archives that
# krew wants, beside them, and prints the plugin's manifest with their digests. The same
# binaries make the same archives.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

(($# == 2)) || fail "which release? usage: hack/krew.sh VERSION DIRECTORY, for instance 0.1.0 bin/dist"
[[ $1 =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "the version is $1; it must be three numbers, for instance 0.1.0"

manifest=$(sed "s/v[0-9]*\.[0-9]*\.[0-9]*/v$1/" "$root/config/krew/keyserver.yaml")
staged=$(mktemp -d)
trap 'rm -rf "$staged"' EXIT
cp "$root/LICENSE" "$staged"
for architecture in amd64 arm64; do
	binary=$2/keyserver-operator-linux-$architecture archive=$2/kubectl-keyserver-linux-$architecture.tar.gz
	[[ -f $binary ]] || fail "$binary is missing: make dist builds it, gh release download fetches it"
	install -m 0755 "$binary" "$staged/kubectl-keyserver"
	tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --mode=go=rX,u+w -C "$staged" -cf - LICENSE kubectl-keyserver | gzip -n >"$archive"
	digest=$(sha256sum "$archive")
	manifest=$(sed "s/\"[0-9]*\" # linux-$architecture\$/${digest%% *}/" <<<"$manifest")
done
sed '1,2d' <<<"$manifest"
