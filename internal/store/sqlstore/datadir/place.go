package datadir

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Place knows which files are open, so that it is noticed when they are not under their
// names any more: somebody removed the directory or put another one in its place, and
// what is written is gone once the files are closed. It is safe for concurrent use.
type Place struct {
	mu    sync.RWMutex
	files map[string]file // by path
}

// file is what the system knows a file by. Nobody else has that as long as it is open.
type file struct {
	device device
	inode  uint64
}

// Opened remembers the file that is under a path now.
func (p *Place) Opened(path string) error {
	f, err := look(path)
	if err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	p.remember(path, f)
	return nil
}

// Needed remembers a path under which some file has to be. SQLite makes a new log after
// the last connection was closed.
func (p *Place) Needed(path string) { p.remember(path, file{}) }

func (p *Place) remember(path string, f file) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.files == nil {
		p.files = map[string]file{}
	}
	p.files[path] = f
}

// Closed forgets a path.
func (p *Place) Closed(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.files, path)
}

// Check answers nil while each open file is under its path. It takes a system call for
// each.
func (p *Place) Check() error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for path, opened := range p.files {
		switch f, err := look(path); {
		case err != nil:
			return fmt.Errorf("%s, which is open, is not there: %w", path, err)
		case opened != file{} && f != opened:
			return fmt.Errorf("%s is not the file that is open, but another one", path)
		}
	}
	return nil
}

func look(path string) (file, error) {
	for {
		var s unix.Stat_t
		err := unix.Lstat(path, &s)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return file{s.Dev, s.Ino}, err
	}
}
