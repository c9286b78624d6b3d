#!/usr/bin/env bash
# Usage: path=$(hack/chromium.sh)
#
# Prints where Chromium is, for tests of the web console. Debian's package is installed
# where this script may do that.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

command -v chromium >/dev/null ||
	need_debian_packages "the web console is tested in Chromium, and this machine has none" chromium
command -v chromium
