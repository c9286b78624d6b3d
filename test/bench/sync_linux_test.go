package bench

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncData is the sync that the audit journal needs.
func syncData(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }
