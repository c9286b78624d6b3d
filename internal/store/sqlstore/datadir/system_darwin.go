package datadir

import "golang.org/x/sys/unix"

type device = int32

// readOnly is the flag of a volume that is mounted read-only.
const readOnly = unix.MNT_RDONLY
