//go:build unix

package login

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// homeVariable names the home directory of the user.
const homeVariable = "HOME"

// lockFile waits until no other process has the lock of a file. The lock ends when the file
// is closed.
func lockFile(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX) }

// othersMayRead reports whether users other than the owner may use a file.
func othersMayRead(info fs.FileInfo) bool { return info.Mode().Perm()&0o077 != 0 }
