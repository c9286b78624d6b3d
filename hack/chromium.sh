#!/usr/bin/env bash
# Usage: path=$(hack/chromium.sh)
#
# Prints the path of Chromium, which tests of the web console use. If it is missing, installs Debian's package if it
# has the rights.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

command -v chromium >/dev/null ||
	need_debian_packages "Chromium is not installed, and the tests of the web console need it" chromium
command -v chromium
