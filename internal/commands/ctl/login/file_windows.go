package login

import (
	"io/fs"
	"math"
	"os"

	"golang.org/x/sys/windows"
)

// homeVariable names the home directory of the user.
const homeVariable = "USERPROFILE"

// lockFile waits until no other process has the lock of a file. The lock ends when the file
// is closed.
func lockFile(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, math.MaxUint32, math.MaxUint32, new(windows.Overlapped))
}

// othersMayRead returns false: Windows has no modes, and Go always reports 0666 or 0444. The files
// are in the profile of the user and inherit its access control list. Only the user, administrators
// and the system have access to it.
func othersMayRead(fs.FileInfo) bool { return false }
