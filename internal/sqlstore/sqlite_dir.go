package sqlstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/pressly/goose/v3"
	"golang.org/x/sys/unix"
)

// Modes of what holds state: for the service's own user only.
const (
	dirMode  = 0o700
	fileMode = 0o600
)

// lockDirectory makes the directory where there is none and takes it for this
// process. The lock is on the directory itself: it leaves no file behind, and
// the kernel drops it with the process, however that ends.
func lockDirectory(dir string, log *slog.Logger) (*os.File, error) {
	if err := makeDirectory(dir); err != nil {
		return nil, refuse(ErrUnusable, "the data directory %s cannot be made: %s", dir, reasonOf(err))
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, refuse(ErrUnusable, "the data directory %s cannot be read: %s", dir, reasonOf(err))
	}
	err = func() error {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return unix.ENOTDIR
		}
		if info.Mode().Perm()&0o077 != 0 {
			// Perhaps a mounted volume, whose mode is not ours to change.
			log.Warn("the data directory is open to other users; its files are not", "dir", dir, "mode", info.Mode().Perm().String())
		}
		// SQLite would quietly fall back to reading only.
		return unix.Access(dir, unix.R_OK|unix.W_OK|unix.X_OK)
	}()
	if err != nil {
		return nil, errors.Join(refuse(ErrUnusable, "the data directory %s cannot be used: %s", dir, reasonOf(err)), f.Close())
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, errors.Join(refuse(ErrInUse, "the data directory %s is in use by another process", dir), f.Close())
	case err != nil:
		return nil, errors.Join(refuse(ErrUnusable, "the data directory %s cannot be locked: %s", dir, reasonOf(err)), f.Close())
	}
	return f, nil
}

// makeDirectory makes only the last element, and makes it private whatever the umask.
func makeDirectory(dir string) error {
	err := os.Mkdir(dir, dirMode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.Chmod(dir, dirMode); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(dir))
}

func createPrivate(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(fileMode), f.Close())
}

// syncDirectory makes the names in a directory durable.
func syncDirectory(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// The parts of SQLite's file header (https://www.sqlite.org/fileformat.html)
// that tell whose file it is.
const (
	headerMagic      = "SQLite format 3\x00"
	headerLen        = 100
	userVersionAt    = 60
	applicationIDAt  = 68
	ourApplicationID = 1263751760 // as in the first migration
)

// checkHeader refuses a file that is not ours or is from a newer version,
// without opening it as a database, which would touch it and its neighbours.
// It reads the file through a descriptor of its own. To close that while
// SQLite has the file open would drop SQLite's locks, so this comes before any
// connection.
func checkHeader(path string, migrations fs.FS) error {
	header, err := readHeader(path)
	if err != nil {
		return err
	}
	if string(header[:len(headerMagic)]) != headerMagic ||
		binary.BigEndian.Uint32(header[applicationIDAt:]) != ourApplicationID {
		return foreignFile(path)
	}
	target, err := latestFile(migrations)
	if err != nil {
		return err
	}
	// The log may hold a newer version still; migrate looks again.
	if version := int64(binary.BigEndian.Uint32(header[userVersionAt:])); version > target {
		return newer(version, target)
	}
	return nil
}

// latestFile is the highest number among the files; they may leave some out.
func latestFile(migrations fs.FS) (int64, error) {
	names, err := fs.Glob(migrations, "*.sql")
	if err != nil {
		return 0, err
	}
	var latest int64
	for _, name := range names {
		number, err := goose.NumericComponent(name)
		if err != nil {
			return 0, fmt.Errorf("read the embedded migrations: %w", err)
		}
		latest = max(latest, number)
	}
	return latest, nil
}

func readHeader(path string) ([]byte, error) {
	// O_NONBLOCK, so that a pipe in place of the file cannot hold us up.
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, refuse(ErrUnusable, "%s cannot be opened for reading and writing: %s", path, reasonOf(err))
	}
	defer f.Close() //nolint:errcheck // nothing was written
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, foreignFile(path)
	}
	header := make([]byte, headerLen)
	switch _, err := io.ReadFull(f, header); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, foreignFile(path)
	case err != nil:
		return nil, refuse(ErrUnusable, "%s cannot be read: %s", path, reasonOf(err))
	}
	return header, nil
}

func foreignFile(path string) error {
	return refuse(ErrForeign, "%s is not a database of this program: choose another data directory, or move the file away", path)
}

// reasonOf leaves out the path, which the sentence around it names.
func reasonOf(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}
