#!/bin/sh
# Usage: make cross
#
# Checks the types of packages and tests for other platforms (hack/cross): all packages for macOS, and the packages of
# the command-line client and of the Go client for Windows. No file depends on the processor, so darwin/arm64 also
# covers darwin/amd64.
. "$(dirname "$0")/lib.sh"

need_go
cd "$root"
cross=$(mktemp)
trap 'rm -f "$cross"' EXIT
CGO_ENABLED=0 GOFLAGS="$(go env GOFLAGS) -trimpath" go build -o "$cross" ./hack/cross || fail "could not build hack/cross"

check() { # GOOS/GOARCH PACKAGE...
	say "checking types for $1"
	"$cross" "$@" >&2 || fail "$1: the files above do not compile; move system calls into a file for each platform, or add a build constraint to the test"
}
check darwin/arm64 ./...
check windows/amd64 ./cmd/keyserverctl ./internal/commands/ctl/... ./internal/commands/program ./httpapi/routes/...
cd clients/go # a separate module, like the next one
check darwin/arm64 ./...
check windows/amd64 ./...
cd "$root/httpapi/keyservertest"
check darwin/arm64 ./...
