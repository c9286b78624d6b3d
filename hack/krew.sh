#!/usr/bin/env bash
# Usage: hack/krew.sh VERSION DIRECTORY
#
# Packs the keyserverctl binaries in DIRECTORY into the archives for krew, in the same directory. Prints the plugin's
# manifest with the digests of the archives. Identical binaries result in identical archives.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

(($# == 2)) || fail "usage: hack/krew.sh VERSION DIRECTORY; example: hack/krew.sh 0.1.0 bin/dist"
[[ $1 =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "VERSION: \"$1\" is not valid; it must be three numbers, for example 0.1.0"

manifest=$(sed "s/v[0-9]*\.[0-9]*\.[0-9]*/v$1/" "$root/config/krew/keyserver.yaml")
staged=$(mktemp -d)
trap 'rm -rf "$staged"' EXIT
cp "$root/LICENSE" "$staged"
for platform in $(sed -n 's/.* # //p' <<<"$manifest"); do
	suffix=
	[[ $platform != windows-* ]] || suffix=.exe
	binary=$2/keyserverctl-$platform$suffix archive=$2/kubectl-keyserver-$platform.tar.gz
	[[ -f $binary ]] || fail "$binary is missing; build it with make dist, or download it with gh release download"
	install -m 0755 "$binary" "$staged/kubectl-keyserver$suffix"
	tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --mode=go=rX,u+w -C "$staged" -cf - LICENSE "kubectl-keyserver$suffix" | gzip -n >"$archive"
	digest=$(sha256sum "$archive")
	manifest=$(sed "s/\"[0-9]*\" # $platform\$/${digest%% *}/" <<<"$manifest")
done
sed '1,2d' <<<"$manifest"
