#!/usr/bin/env bash
# Makes sure that node and npm are there, on which test/interop runs clients and
# hack/openapi.sh linters from the npm registry. Debian's packages are installed
# where this script may do that. With curl test/contract runs the example of
# docs/api.md.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

command -v node >/dev/null && command -v npm >/dev/null && command -v curl >/dev/null && exit 0
need_debian_packages "clients and linters from the npm registry run on Node.js, an example with curl, and this machine has not all of node, npm and curl" nodejs npm curl
