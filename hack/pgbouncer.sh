#!/usr/bin/env bash
# Usage: RIG_PGBOUNCER=$(hack/pgbouncer.sh)
#
# Prints the path of PgBouncer. Tests start it in front of their own PostgreSQL server. Uses the first that exists:
# RIG_PGBOUNCER, PATH, the path in Debian. If there is none, installs Debian's package if this script has the rights to
# do so. Does not start the service of the package.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

find_pgbouncer() {
	local path
	for path in "$(command -v pgbouncer || true)" /usr/sbin/pgbouncer; do
		if [[ -x $path ]]; then echo "$path"; return; fi
	done
	return 1
}

if [[ -n ${RIG_PGBOUNCER:-} ]]; then
	[[ -x $RIG_PGBOUNCER ]] || fail "RIG_PGBOUNCER: \"$RIG_PGBOUNCER\" is not an executable file; correct it, or unset it"
	echo "$RIG_PGBOUNCER"
	exit 0
fi

find_pgbouncer && exit 0

keep_services_stopped
need_debian_packages "PgBouncer is not installed, and the tests need it" pgbouncer
find_pgbouncer || fail "the pgbouncer package is installed, but its program was not found; set RIG_PGBOUNCER to its path"
