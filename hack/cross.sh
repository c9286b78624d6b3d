#!/bin/sh
# Usage: make cross
#
# Fails if a package or a test does not compile elsewhere: all of them for macOS, and the
# command-line client for Windows (hack/cross). No file of this module depends on the
# processor, so one of macOS stands for both.
. "$(dirname "$0")/lib.sh"

need_go
cd "$root"
cross=$(mktemp)
trap 'rm -f "$cross"' EXIT
CGO_ENABLED=0 GOFLAGS="$(go env GOFLAGS) -trimpath" go build -o "$cross" ./hack/cross || fail "could not build hack/cross"

check() { # GOOS/GOARCH PACKAGE...
	say "types on $1"
	"$cross" "$@" >&2 || fail "$1: the files above do not compile; put system calls into a file of each platform, or give the test a build constraint"
}
check darwin/arm64 ./...
check windows/amd64 ./cmd/keyserverctl ./internal/commands/ctl/... ./internal/commands/program ./httpapi/client/... ./httpapi/routes/... ./httpapi/schema/...
