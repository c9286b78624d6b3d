#!/bin/sh
# Usage: hack/test.sh check|test|system "PACKAGE..." [FLAG...]
#
# Runs the tests of a tier (hack/needs.sh -tier), or only the tests of the given packages. FLAG is a flag of "go test".
# Prints each package with its time, the output of failed tests, and the ten slowest tests.
. "$(dirname "$0")/lib.sh"

tier=$1 named=$2
shift 2
cd "$root"
mkdir -p bin/test
# Packages that take minutes start first, so that none of them runs alone at the end.
longest="internal/store/sqlstore controllers test/crash test/script test/contract test/e2e test/federation/processes"
ranked() {
	awk -v longest="$longest" 'BEGIN { n = split(longest, name, " ") }
		{ rank = n + 1; for (i in name) if ($0 ~ "/" name[i] "$") rank = i; print rank, $0 }' | sort -s -n -k 1,1 | cut -d ' ' -f 2
}
packages=$named
[ -n "$named" ] || packages=$("$root/hack/needs.sh" -tier "$tier" ./... "$(go list -m)/clients/go/..." | ranked | tr '\n' ' ')
[ -n "$packages" ] || fail "no package belongs to the tier $tier"

processors=$(getconf _NPROCESSORS_ONLN)
format=pkgname hidden=
case " $* " in *" -v "*) format=standard-verbose ;; esac

# On a disk, fsync takes half of the CPU time of a test of the store. So databases of tests are in memory if it has 4
# GiB of free space. The path is the same for each run, because cached test results depend on it. System tests use the
# disk, because they test it.
memory=/dev/shm
# On macOS, the default TMPDIR is too long for the path of a socket.
if [ "$(uname)" = Darwin ]; then export TMPDIR=/tmp; fi
if [ "$tier" != system ] && [ -z "${TMPDIR:-}" ] && [ -w "$memory" ] && [ "$(df -Pk "$memory" | awk 'NR == 2 { print $4 }')" -ge 4194304 ]; then
	memory=$memory/keyserver-operator-$tier-$(printf %s "$root" | digest -)
	if kill -0 "$(cat "$memory/owner" 2>/dev/null)" 2>/dev/null; then memory=$memory-$$; fi # another run uses it
	rm -rf "$memory"
	mkdir -m 711 "$memory" # PostgreSQL runs as another user than root
	trap 'rm -rf "$memory"' EXIT
	echo $$ >"$memory/owner"
	printf '#!/bin/sh\n' >"$memory/program" && chmod +x "$memory/program"
	if "$memory/program" 2>/dev/null; then # fails with the mount option noexec
		export TMPDIR="$memory" GOTMPDIR="${GOTMPDIR:-/tmp}"
	fi
	rm "$memory/program"
fi

# By default, garbage collection takes up to a third of the processor time. The limit applies to each process. System
# tests run programs like users.
if [ "$tier" != system ]; then export GOGC=400 GOMEMLIMIT=2GiB; fi

case $tier in
check)
	# Half of the time, tests wait for a clock or for the disk. So more packages run at the same time than there are
	# processors. Tests that need a server are skipped.
	flags="-short -p $((2 * processors)) -parallel 8"
	hidden=--hide-summary=skipped
	;;
*)
	# shellcheck disable=SC2086
	environment=$("$root/hack/provide.sh" $packages)
	eval "$environment"
	flags="-p $((processors + 1)) -vet=off -timeout 60m" # "make lint" runs vet
	;;
esac

# A failed test is run a second time. If it passes then, it is listed at the end, because that is a defect, too.
results=bin/test/$tier.json again=bin/test/$tier.again status=0
: >"$again"
# shellcheck disable=SC2086
CGO_ENABLED=0 GOFLAGS="$(go env GOFLAGS) -trimpath" \
	bin/gotestsum --format "$format" --format-icons text $hidden --jsonfile "$results" \
	--rerun-fails=1 --rerun-fails-max-failures=5 --rerun-fails-run-root-test --rerun-fails-report="$again" --packages "$packages" -- $flags "$@" || status=$?
if [ -s "$again" ]; then
	say "these tests failed and were run again; correct the test, or the defect that it found:"
	cat "$again" >&2
fi
say "the ten slowest tests of $(echo "$packages" | wc -w | tr -d ' ') packages:"
bin/gotestsum tool slowest --num 10 --threshold 1s --jsonfile "$results" >&2 || true # it cannot read lines over 64 KiB
exit "$status"
