#!/usr/bin/env bash
# Usage: RIG_RSYSLOGD=$(hack/rsyslog.sh)
#
# Prints the path of rsyslogd, which tests start on a loopback port. Uses the first that exists: RIG_RSYSLOGD, PATH, the
# path in Debian. If rsyslogd or its TLS drivers are missing, installs Debian's packages, if it has the rights. Does not
# start the service of the package.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

find_rsyslog() {
	local path
	compgen -G '/usr/lib/*/rsyslog/lmnsd_ossl.so' >/dev/null && compgen -G '/usr/lib/*/rsyslog/lmnsd_gtls.so' >/dev/null || return 1
	for path in "$(command -v rsyslogd || true)" /usr/sbin/rsyslogd; do
		if [[ -x $path ]]; then echo "$path"; return; fi
	done
	return 1
}

if [[ -n ${RIG_RSYSLOGD:-} ]]; then
	[[ -x $RIG_RSYSLOGD ]] || fail "RIG_RSYSLOGD: \"$RIG_RSYSLOGD\" is not an executable file; correct it, or unset it"
	echo "$RIG_RSYSLOGD"
	exit 0
fi

find_rsyslog && exit 0

keep_services_stopped
need_debian_packages "rsyslog with TLS is not installed, and the tests of audit sinks need it" rsyslog rsyslog-openssl rsyslog-gnutls
find_rsyslog || fail "the rsyslog packages are installed, but rsyslogd or its TLS drivers were not found"
