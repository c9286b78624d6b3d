# shellcheck shell=dash
# Shared by the scripts in hack/ and test/thirdparty/. The result of a script goes to
# stdout; messages for people go to stderr.
#
# Scripts behind "make build", "make run", "make check" and "make cross" run under sh, and
# use only options that macOS and BusyBox have. The others run under bash.

set -eu
# shellcheck disable=SC3040 # dash has no pipefail
if (set -o pipefail) 2>/dev/null; then set -o pipefail; fi
# Without bash, $0 is a script in the directory of this file.
# shellcheck disable=SC3028
root=$(cd "$(dirname "${BASH_SOURCE:-$0}")/.." && pwd)
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Not every Unix has the command timeout. Without it, commands run without a time limit.
command -v timeout >/dev/null || timeout() { shift; "$@"; }

say() { printf '==> %s\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# The built tools and control planes are shared by all checkouts of this user.
cache_dir() {
	if [ -n "${XDG_CACHE_HOME:-}" ]; then echo "$XDG_CACHE_HOME/keyserver-operator"
	elif [ -n "${HOME:-}" ]; then echo "$HOME/.cache/keyserver-operator"
	else echo "$root/bin/cache"; fi
}

# digest FILE...: prints twelve hex digits of a hash of the contents; "-" is standard input.
digest() {
	if command -v sha256sum >/dev/null; then cat "$@" | sha256sum; else cat "$@" | shasum -a 256; fi | cut -c1-12
}

# The go command may switch its toolchain to build this module. So ask the go command whether it can build the module
# instead of comparing versions.
need_go() {
	local want answer
	want=$(awk '$1 == "go" { print $2 }' "$root/go.mod")
	command -v go >/dev/null || fail "Go is not installed; install Go $want or newer, and add it to PATH"
	answer=$(cd "$root" && go list -m 2>&1) ||
		fail "Go $want or newer is required, but this is $(go env GOVERSION 2>/dev/null || go version): $(printf '%s\n' "$answer" | tail -n 1)"
}

# need_disk GIGABYTES DIR...: requires free space in each directory, or in its
# nearest parent that exists.
need_disk() {
	local want=$1 dir free; shift
	for dir in "$@"; do
		while [ ! -d "$dir" ]; do dir=$(dirname "$dir"); done
		free=$(df -Pk "$dir" | awk 'NR == 2 { print int($4 / 1048576) }')
		[ "$free" -ge "$want" ] || fail "not enough disk space: $free GB are free under $dir, and about $want GB are required; free some space"
	done
}

# progress LABEL NOTE COMMAND...: runs the command and writes its output to a log. Reports every ten seconds that it
# still runs. If it fails, shows the end of the output. NOTE tells how long the command takes or why; it may be empty.
progress() {
	local label note start log status=0 ticker
	label=$1 note=${2:+, $2} start=$(date +%s)
	log=$(mktemp)
	say "$label${2:+: $2}"
	shift 2
	# The ticker ends by itself if this script is killed. It keeps neither the caller's stdout nor the lock open.
	{
		while sleep 1 && kill -0 $$ 2>/dev/null; do
			seconds=$(($(date +%s) - start))
			if [ $((seconds % 10)) = 0 ]; then say "$label: $seconds s so far$note"; fi
		done
	} >/dev/null 8>&- &
	ticker=$!
	# Ctrl-C also reaches the command, because the command is in the foreground. Then the trap above ends this script.
	"$@" >"$log" 2>&1 || status=$?
	kill "$ticker" 2>/dev/null || true
	wait "$ticker" 2>/dev/null || true
	start=$(($(date +%s) - start))
	if [ "$status" != 0 ]; then say "$label: failed after $start s"; tail -n 20 "$log" >&2; else say "$label: done in $start s"; fi
	rm -f "$log"
	return "$status"
}

# locked DIR: only one run at a time fills DIR; the lock ends with the process. Without flock, two runs may both build.
# This is only twice the work: each run renames its complete result, so no run sees an incomplete file.
locked() {
	mkdir -p "$1"
	command -v flock >/dev/null || return 0
	exec 8>"$1/.lock"
	flock -n 8 || progress "waiting for another run that builds the same files" "in $1" flock 8
	rm -f "$1"/.tmp.*
}

# need_debian_packages REASON PACKAGE...: installs the packages if it has the rights.
need_debian_packages() {
	local reason="$1"; shift
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		fail "$reason; install the packages (on Debian and Ubuntu: sudo apt-get install $*), and run this again"
	fi
	say "$reason"
	progress "installing $*" "with apt-get" env DEBIAN_FRONTEND=noninteractive sh -c \
		'apt-get update && apt-get install -y --no-install-recommends "$@"' - "$@" ||
		fail "apt-get could not install $*; the last lines of its output are above"
}

# keep_services_stopped: Debian starts installed services, except if this file exists. An existing file, as in most
# containers, is not changed.
keep_services_stopped() {
	local policy=/usr/sbin/policy-rc.d
	if [ "$(id -u)" = 0 ] && [ -d /usr/sbin ] && [ ! -e "$policy" ]; then
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod 755 "$policy"
		trap 'rm -f /usr/sbin/policy-rc.d' EXIT
	fi
}
