#!/usr/bin/env bash
# Usage: RIG_SLAPD=$(hack/slapd.sh)
#
# Prints the path of the OpenLDAP server, which tests start on a loopback port. Uses the first that exists: RIG_SLAPD,
# PATH, the path in Debian. If there is none, installs Debian's package if it has the rights. Does not
# start the service of the package.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

find_slapd() {
	local path
	for path in "$(command -v slapd || true)" /usr/sbin/slapd; do
		if [[ -x $path ]]; then echo "$path"; return; fi
	done
	return 1
}

if [[ -n ${RIG_SLAPD:-} ]]; then
	[[ -x $RIG_SLAPD ]] || fail "RIG_SLAPD: \"$RIG_SLAPD\" is not an executable file; correct it, or unset it"
	echo "$RIG_SLAPD"
	exit 0
fi

find_slapd && exit 0

keep_services_stopped
need_debian_packages "the OpenLDAP server is not installed, and the tests of LDAP logins need it" slapd
find_slapd || fail "the slapd package is installed, but its server was not found; set RIG_SLAPD to its path"
