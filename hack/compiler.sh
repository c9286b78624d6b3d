#!/usr/bin/env bash
# Makes sure that there is a C compiler, which Go's race detector and cgo need on Linux.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_go
compiler=$(go env CC)
if ! command -v "${compiler%% *}" >/dev/null; then
	need_debian_packages "no C compiler is installed, and the race detector, the HSM plugin and Vale need one" gcc libc6-dev
fi
