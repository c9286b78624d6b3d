// Package unixsocket takes the place of a socket: one that was left over goes, one where
// somebody answers stays, and nobody meets it with another mode than it is to have.
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

// Scheme begins the URL of a socket.
const Scheme = "unix://"

const (
	// maxPath is what every system takes for the path of a socket, less what the name has
	// more before it is in its place.
	maxPath = 100
	pending = ".new"
	// askTime is how long whoever holds a socket may take to answer.
	askTime = time.Second
)

// Path is that of the socket which a URL names. A name that begins with @ is refused: for
// some programs that is a socket without a file, which everybody on the machine may open.
func Path(url string) (string, error) {
	name, is := strings.CutPrefix(url, Scheme)
	switch {
	case !is || !path.IsAbs(name) || path.Clean(name) != name || name == "/" || strings.ContainsAny(name, "?#\x00"):
		return "", fmt.Errorf("%q must be unix:// and the absolute path of a socket, for instance unix:///run/keyserver/some.sock", url)
	case strings.HasPrefix(name, "/@"):
		return "", fmt.Errorf("%q is a socket without a file, which everybody on the machine may open; name one with a directory", url)
	case len(name) > maxPath:
		return "", fmt.Errorf("%q: the path of a socket must be at most %d bytes long", url, maxPath)
	}
	return name, nil
}

// Listen takes the place. Its directory is locked meanwhile, so that of two processes that
// begin at once none takes it from the other.
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
	if err := os.Remove(made); err != nil && !errors.Is(err, fs.ErrNotExist) { // of one that was killed
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", made)
	if err != nil {
		return nil, err
	}
	if unix, ok := l.(*net.UnixListener); ok {
		unix.SetUnlinkOnClose(false) // by a name that it has no more
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

// lock holds the directory of a place until it is told to give it up.
func lock(place string) (unlock func() error, err error) {
	dir, err := os.Open(filepath.Dir(place))
	if err != nil {
		return nil, fmt.Errorf("%w; make the directory, for the user that the process runs as", err)
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock the directory of %s: %w", place, err), dir.Close())
	}
	return dir.Close, nil
}

// vacant refuses a place where somebody answers, or where something else lies.
func vacant(ctx context.Context, place string) error {
	info, err := os.Lstat(place)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there and is no socket; remove it or name another path", place)
	}
	conn, err := (&net.Dialer{Timeout: askTime}).DialContext(ctx, "unix", place)
	switch {
	case err == nil:
		_ = conn.Close()
		return fmt.Errorf("another process answers at %s; stop it or name another path", place)
	case !errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("whether a process answers at %s is not known: %w", place, err)
	}
	return nil
}

// socket takes its file with it when it is closed.
type socket struct {
	net.Listener
	place string
}

// Close implements net.Listener. Nobody can have the place before it is closed.
func (s *socket) Close() error {
	unlock, err := lock(s.place)
	if err != nil {
		return errors.Join(err, s.Listener.Close())
	}
	err = s.Listener.Close()
	if err == nil { // and not when it is closed again
		if err = os.Remove(s.place); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return errors.Join(err, unlock())
}

// Addr names the socket by the path that it has now.
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.place, Net: "unix"} }
