package journal

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// writeDurably writes and syncs in one system call, if the system supports it.
func writeDurably(f *os.File, b []byte, at int64) error {
	for len(b) > 0 {
		n, err := unix.Pwritev2(int(f.Fd()), [][]byte{b}, at, unix.RWF_DSYNC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			if _, err := f.WriteAt(b, at); err != nil {
				return err
			}
			return unix.Fdatasync(int(f.Fd()))
		case err != nil:
			return err
		}
		b, at = b[n:], at+int64(n)
	}
	return nil
}

// reserve allocates the disk blocks of a file, if the file system supports it.
func reserve(f *os.File, size int64) error {
	if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	return nil
}
