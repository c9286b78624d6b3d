#!/usr/bin/env bash
# Makes sure that there is a C compiler, which Go's race detector and cgo need on Linux.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_go
compiler=$(go env CC)
if ! command -v "${compiler%% *}" >/dev/null; then
	need_debian_packages "the race detector, the plugin of an HSM and Vale need a C compiler, and this machine has none" gcc libc6-dev
fi
