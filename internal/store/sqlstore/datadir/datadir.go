// Package datadir manages the directory of a SQLite database. One process at a time locks
// the directory. Its files are private, and a file of another program is rejected.
package datadir

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Modes of the directory and its files: only the key server's user has access.
const (
	dirMode  = 0o700
	fileMode = 0o600
)

// Reasons why a directory is rejected. Refuse adds the message for users.
var (
	ErrForeign  = errors.New("not a database of this program")
	ErrInUse    = errors.New("in use by another process")
	ErrUnusable = errors.New("cannot be used")
)

// refusal is an error that wraps its kind. Its text is only the sentence.
type refusal struct {
	sentence string
	kind     error
}

// Refuse returns an error that wraps kind. Its text is the formatted sentence.
func Refuse(kind error, format string, args ...any) error {
	return &refusal{sentence: fmt.Sprintf(format, args...), kind: kind}
}

func (r *refusal) Error() string { return r.sentence }
func (r *refusal) Unwrap() error { return r.kind }

// Lock creates the directory if there is none, and locks it for this process. The directory itself is locked: there is
// no lock file, and the kernel releases the lock when the process ends.
func Lock(dir string, log *slog.Logger) (*os.File, error) {
	if err := makeDirectory(dir); err != nil {
		return nil, Refuse(ErrUnusable, "the data directory %s cannot be created: %s", dir, ReasonOf(err))
	}
	f, err := os.Open(dir)
	if to, linked := os.Readlink(dir); errors.Is(err, fs.ErrNotExist) && linked == nil {
		return nil, Refuse(ErrUnusable, "the data directory %s is a link to %s, which does not exist; create that directory, or name another one", dir, to)
	}
	if err != nil {
		return nil, Refuse(ErrUnusable, "the data directory %s cannot be read: %s", dir, ReasonOf(err))
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
			// The directory may be a mounted volume, so this program does not change its mode.
			log.Warn("other users have access to the data directory, but not to its files", "dir", dir, "mode", info.Mode().Perm().String())
		}
		// Without write access, SQLite would open the database read-only and report no error.
		return unix.Access(dir, unix.R_OK|unix.W_OK|unix.X_OK)
	}()
	if err != nil {
		return nil, errors.Join(Refuse(ErrUnusable, "the data directory %s cannot be used: %s", dir, ReasonOf(err)), f.Close())
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, errors.Join(Refuse(ErrInUse, "the data directory %s is in use by another process", dir), f.Close())
	case err != nil:
		return nil, errors.Join(Refuse(ErrUnusable, "the data directory %s cannot be locked: %s", dir, ReasonOf(err)), f.Close())
	}
	return f, nil
}

// awaitEvery is the interval at which Await checks: a blocking lock cannot be cancelled.
const awaitEvery = 10 * time.Millisecond

// Await waits until no other process has locked the directory, but no longer than patience.
// It does not lock the directory itself, so a later Lock can still return ErrInUse.
func Await(ctx context.Context, dir string, patience time.Duration, log *slog.Logger) error {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	said := false
	for {
		held, err := isHeld(dir)
		if err != nil || !held {
			return nil // Lock reports errors of the directory
		}
		if !said {
			said = true
			log.Info("the data directory is in use by another process; this process waits until the other one ends", "dir", dir, "atMost", patience.String())
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil
			}
			return ctx.Err()
		case <-time.After(awaitEvery):
		}
	}
}

func isHeld(dir string) (bool, error) {
	f, err := os.Open(dir)
	if err != nil {
		return false, err
	}
	defer f.Close() //nolint:errcheck // nothing was written; closing releases the lock
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// makeDirectory creates only the last element of the path. It makes the directory private regardless of the umask.
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
	return Sync(filepath.Dir(dir))
}

// CreatePrivate creates an empty file. It fails if the file exists.
func CreatePrivate(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(fileMode), f.Close())
}

// Sync makes the entries of a directory durable, such as the name of a new file.
func Sync(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Fields of SQLite's file header (https://www.sqlite.org/fileformat.html) that identify the
// program to which a file belongs.
const (
	headerMagic      = "SQLite format 3\x00"
	headerLen        = 100
	userVersionAt    = 60
	applicationIDAt  = 68
	ourApplicationID = 1263751760 // the first migration sets the same value
)

// UserVersion returns the version in the header of a database of this program, and rejects
// any other file. It does not open the file with SQLite, because that would change files in
// the directory. It closes its own file descriptor, which releases all SQLite locks of this
// process on the file. So call UserVersion before SQLite opens the file.
func UserVersion(path string) (int64, error) {
	header, err := readHeader(path)
	if err != nil {
		return 0, err
	}
	if string(header[:len(headerMagic)]) != headerMagic ||
		binary.BigEndian.Uint32(header[applicationIDAt:]) != ourApplicationID {
		return 0, ForeignFile(path)
	}
	return int64(binary.BigEndian.Uint32(header[userVersionAt:])), nil
}

func readHeader(path string) ([]byte, error) {
	// O_NONBLOCK, so that a pipe in place of the file cannot block the process.
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, Refuse(ErrUnusable, "%s cannot be opened for reading and writing: %s", path, ReasonOf(err))
	}
	defer f.Close() //nolint:errcheck // nothing was written
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, ForeignFile(path)
	}
	header := make([]byte, headerLen)
	switch _, err := io.ReadFull(f, header); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, ForeignFile(path)
	case err != nil:
		return nil, Refuse(ErrUnusable, "%s cannot be read: %s", path, ReasonOf(err))
	}
	return header, nil
}

// ForeignFile returns the error for a file of another program.
func ForeignFile(path string) error {
	return Refuse(ErrForeign, "%s is not a database of this program; choose another data directory, or move the file", path)
}

// ReasonOf returns the text of an error without the path, because the message has the path already.
func ReasonOf(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}
