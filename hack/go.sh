#!/bin/sh
# Makes sure that Go is there and new enough: one sentence instead of the shell's.
. "$(dirname "$0")/lib.sh"

need_go
