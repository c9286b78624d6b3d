//go:build unix

package login

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// homeVariable is the environment variable with the user's home directory.
const homeVariable = "HOME"

// lockFile waits until this process has the lock of a file. Closing the file releases the lock.
func lockFile(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX) }

// othersMayRead reports whether the mode gives other users access to a file.
func othersMayRead(info fs.FileInfo) bool { return info.Mode().Perm()&0o077 != 0 }
