#!/usr/bin/env bash
# Usage: path=$(hack/chromium.sh)
#
# Prints the path of Chromium, for tests of the web console. Installs Debian's package
# if this script may do that.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

command -v chromium >/dev/null ||
	need_debian_packages "Chromium is not installed, and the tests of the web console need it" chromium
command -v chromium
