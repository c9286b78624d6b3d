#!/usr/bin/env bash
# Usage: RIG_PG_BIN=$(hack/postgres.sh)
#
# Prints the directory of the PostgreSQL server programs (initdb, postgres, pg_ctl). Tests start their own server with
# them. Uses the first that exists: RIG_PG_BIN, PATH, the newest version in Debian. If there is none, installs Debian's
# package if it has the rights.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

complete() { [[ -x $1/initdb && -x $1/postgres && -x $1/pg_ctl ]]; }

find_postgres() {
	local postgres dir
	if postgres=$(command -v postgres); then
		dir=$(dirname "$(readlink -f "$postgres")") # PATH may contain only a link to postgres
		if complete "$dir"; then echo "$dir"; return; fi
	fi
	for dir in $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV); do
		if complete "$dir"; then echo "$dir"; return; fi
	done
	return 1
}

if [[ -n ${RIG_PG_BIN:-} ]]; then
	complete "$RIG_PG_BIN" ||
		fail "RIG_PG_BIN: \"$RIG_PG_BIN\" does not contain all of initdb, postgres and pg_ctl; correct it, or unset it"
	echo "$RIG_PG_BIN"
	exit 0
fi

find_postgres && exit 0
need_debian_packages "the PostgreSQL server is not installed, and the tests need it" postgresql
find_postgres || fail "the postgresql package is installed, but its server programs were not found; set RIG_PG_BIN to their directory"
