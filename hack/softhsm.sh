#!/usr/bin/env bash
# Usage: RIG_SOFTHSM=$(hack/softhsm.sh)
#
# Prints the path of SoftHSM's PKCS#11 library. Tests create their own tokens with it. Uses the first that exists:
# RIG_SOFTHSM, the path in Debian. If there is none, installs Debian's package if it has the rights.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

find_softhsm() {
	local path
	command -v softhsm2-util >/dev/null || return 1
	for path in /usr/lib/softhsm/libsofthsm2.so /usr/lib/*/softhsm/libsofthsm2.so; do
		if [[ -f $path ]]; then echo "$path"; return; fi
	done
	return 1
}

if [[ -n ${RIG_SOFTHSM:-} ]]; then
	[[ -f $RIG_SOFTHSM ]] || fail "RIG_SOFTHSM: \"$RIG_SOFTHSM\" is not a file; correct it, or unset it"
	echo "$RIG_SOFTHSM"
	exit 0
fi

find_softhsm && exit 0
need_debian_packages "SoftHSM is not installed, and the tests of PKCS#11 tokens need it" softhsm2
find_softhsm || fail "the softhsm2 package is installed, but its library was not found; set RIG_SOFTHSM to its path"
