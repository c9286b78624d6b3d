package datadir

import "golang.org/x/sys/unix"

type device = uint64

// readOnly is the flag of a volume that is mounted read-only.
const readOnly = unix.ST_RDONLY
