#!/bin/sh
# Makes sure that Go is installed and new enough, with a clear error if it is not.
. "$(dirname "$0")/lib.sh"

need_go
