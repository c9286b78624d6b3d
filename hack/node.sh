#!/bin/sh
# Makes sure that node and npm are installed. test/interop runs clients with them, and hack/openapi.sh runs linters from
# the npm registry. If they are missing, installs Debian's packages if it has the rights.
. "$(dirname "$0")/lib.sh"

command -v node >/dev/null && command -v npm >/dev/null && exit 0
need_debian_packages "Node.js with npm is not installed, and clients and linters from the npm registry need it" nodejs npm
