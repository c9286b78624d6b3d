#!/usr/bin/env bash
# Makes sure that node and npm are there, on which test/interop runs clients
# from the npm registry. Debian's packages are installed where this script may
# do that.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

command -v node >/dev/null && command -v npm >/dev/null && exit 0
need_debian_packages "the tests also run clients from the npm registry, and this machine has no Node.js with npm" nodejs npm
