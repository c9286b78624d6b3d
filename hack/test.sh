#!/bin/sh
# Usage: hack/test.sh check|test|system "PACKAGE..." [FLAG...]
#
# Runs the tests of a tier (hack/needs.sh -tier), or of the packages if some are named, with the
# flags of "go test". Prints each package with its time, the output of failed tests only, and
# the ten slowest tests.
. "$(dirname "$0")/lib.sh"

tier=$1 named=$2
shift 2
cd "$root"
mkdir -p bin/test
# Packages that take minutes begin first, so that none of them runs alone at the end.
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

# On a disk, fsync takes half of the CPU time of a test of the store, so the databases of tests
# are in memory if 4 GiB of it are free. The name is the same for each run, because a cached
# result depends on it. System tests are about disks.
memory=/dev/shm
# The directory of macOS is too long for the path of a socket.
if [ "$(uname)" = Darwin ]; then export TMPDIR=/tmp; fi
if [ "$tier" != system ] && [ -z "${TMPDIR:-}" ] && [ -w "$memory" ] && [ "$(df -Pk "$memory" | awk 'NR == 2 { print $4 }')" -ge 4194304 ]; then
	memory=$memory/keyserver-operator-$tier-$(printf %s "$root" | digest -)
	if kill -0 "$(cat "$memory/owner" 2>/dev/null)" 2>/dev/null; then memory=$memory-$$; fi # another run uses it
	rm -rf "$memory"
	mkdir -m 711 "$memory" # PostgreSQL runs as another user than root
	trap 'rm -rf "$memory"' EXIT
	echo $$ >"$memory/owner"
	printf '#!/bin/sh\n' >"$memory/program" && chmod +x "$memory/program"
	if "$memory/program" 2>/dev/null; then # not with the mount option noexec
		export TMPDIR="$memory" GOTMPDIR="${GOTMPDIR:-/tmp}"
	fi
	rm "$memory/program"
fi

# Garbage collection took up to a third of the processor time of a package. The limit bounds the memory of each process. System
# tests run programs as users do.
if [ "$tier" != system ]; then export GOGC=400 GOMEMLIMIT=2GiB; fi

case $tier in
check)
	# Tests wait for a clock or for the disk half of the time. So more packages run at once
	# than there are processors. Tests that need a server are skipped.
	flags="-short -p $((2 * processors)) -parallel 8"
	hidden=--hide-summary=skipped
	;;
*)
	# shellcheck disable=SC2086
	environment=$("$root/hack/provide.sh" $packages)
	eval "$environment"
	flags="-p $((processors + 1)) -vet=off -timeout 60m" # "make lint" vets
	;;
esac

# A failed test runs once more. If it passes then, it is listed at the end: it is a defect, too.
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
bin/gotestsum tool slowest --num 10 --threshold 1s --jsonfile "$results" >&2 || true # it reads no lines over 64 KiB
exit "$status"
