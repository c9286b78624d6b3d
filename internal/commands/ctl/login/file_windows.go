package login

import (
	"io/fs"
	"math"
	"os"

	"golang.org/x/sys/windows"
)

// homeVariable is the environment variable with the user's home directory.
const homeVariable = "USERPROFILE"

// lockFile waits until this process has the lock of a file. Closing the file releases the lock.
func lockFile(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, math.MaxUint32, math.MaxUint32, new(windows.Overlapped))
}

// othersMayRead returns false, because Windows has no file modes and Go always reports 0666 or 0444. The files are in
// the user's profile and inherit its access control list. Only the user, administrators and the system have access.
func othersMayRead(fs.FileInfo) bool { return false }
