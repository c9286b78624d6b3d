// Package unixsocket listens on Unix sockets. It replaces the socket file of a process that has ended, but not that of
// a running process. The socket file has the requested mode from the start.
package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Scheme is the prefix of the URL of a Unix socket.
const Scheme = "unix://"

const (
	// maxPath is the length of a socket path that every system allows, minus the length of the temporary suffix.
	maxPath = 100
	pending = ".new"
	// askTime is the time limit of the connection that tests whether a process serves an existing socket.
	askTime = time.Second
)

// Path returns the path in the URL of a Unix socket. It rejects a path that begins with /@, because some programs use
// it as a socket without a file, which every user of the machine may open.
func Path(url string) (string, error) {
	name, is := strings.CutPrefix(url, Scheme)
	switch {
	case !is || !path.IsAbs(name) || path.Clean(name) != name || name == "/" || strings.ContainsAny(name, "?#\x00"):
		return "", fmt.Errorf("%q must be unix:// and the absolute path of a socket, for instance unix:///run/keyserver/some.sock", url)
	case strings.HasPrefix(name, "/@"):
		return "", fmt.Errorf("%q is a socket without a file, which every user of the machine may open; use a path in a directory", url)
	case len(name) > maxPath:
		return "", fmt.Errorf("%q: the path of a socket must be at most %d bytes long", url, maxPath)
	}
	return name, nil
}

// Listen listens on a socket at the path place with the given mode. It locks the directory while it replaces the
// socket, so that two processes which start at the same time cannot replace each other's socket.
func Listen(ctx context.Context, place string, mode fs.FileMode) (_ net.Listener, err error) {
	unlock, err := lock(place)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := vacant(ctx, place); err != nil {
		return nil, err
	}
	made := place + pending
	if err := os.Remove(made); err != nil && !errors.Is(err, fs.ErrNotExist) { // from a killed process
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", made)
	if err != nil {
		return nil, err
	}
	if unix, ok := l.(*net.UnixListener); ok {
		unix.SetUnlinkOnClose(false) // the socket gets another name below
	}
	err = os.Chmod(made, mode)
	if err == nil {
		err = os.Rename(made, place)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(made))
	}
	return &socket{l, place}, nil
}

// lock locks the directory of the path place until unlock is called.
func lock(place string) (unlock func() error, err error) {
	dir, err := os.Open(filepath.Dir(place))
	if err != nil {
		return nil, fmt.Errorf("%w; create the directory, with access for the user of the process", err)
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock the directory of %s: %w", place, err), dir.Close())
	}
	return dir.Close, nil
}

// vacant returns an error if a process serves the socket at place, or if the file there is not a socket.
func vacant(ctx context.Context, place string) error {
	info, err := os.Lstat(place)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists and is not a socket; remove it or use another path", place)
	}
	conn, err := (&net.Dialer{Timeout: askTime}).DialContext(ctx, "unix", place)
	switch {
	case err == nil:
		_ = conn.Close()
		return fmt.Errorf("another process responds at %s; stop it or use another path", place)
	case !errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("cannot find out whether a process responds at %s: %w", place, err)
	}
	return nil
}

// socket is a listener that removes its file when it is closed.
type socket struct {
	net.Listener
	place string
}

// Close implements net.Listener. It locks the directory, so that it does not remove a socket that another process has
// just created.
func (s *socket) Close() error {
	unlock, err := lock(s.place)
	if err != nil {
		return errors.Join(err, s.Listener.Close())
	}
	err = s.Listener.Close()
	if err == nil { // only at the first call of Close
		if err = os.Remove(s.place); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return errors.Join(err, unlock())
}

// Addr returns the path of the socket without the temporary suffix.
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.place, Net: "unix"} }
