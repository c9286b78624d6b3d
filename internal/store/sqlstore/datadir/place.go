package datadir

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Place records the open files, and detects if their paths no longer name the same files.
// That happens if the directory was removed or replaced. Data written to the open files is
// then lost when they are closed. Place is safe for concurrent use.
type Place struct {
	mu    sync.RWMutex
	files map[string]file // the open files by path
}

// file identifies a file by device and inode. No other file has the same value while the
// file is open.
type file struct {
	device device
	inode  uint64
}

// Opened records the path and the file at that path.
func (p *Place) Opened(path string) error {
	f, err := look(path)
	if err != nil {
		return fmt.Errorf("inspect %s: %w", path, err)
	}
	p.record(path, f)
	return nil
}

// Needed records a path at which a file must exist. Another file may replace this file: SQLite creates a new log after
// the last connection was closed.
func (p *Place) Needed(path string) { p.record(path, file{}) }

func (p *Place) record(path string, f file) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.files == nil {
		p.files = map[string]file{}
	}
	p.files[path] = f
}

// Closed removes a path from the record.
func (p *Place) Closed(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.files, path)
}

// Check returns nil if each path still names the recorded file. It makes one system call
// per file.
func (p *Place) Check() error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for path, opened := range p.files {
		switch f, err := look(path); {
		case err != nil:
			return fmt.Errorf("the open file %s is missing: %w", path, err)
		case opened != file{} && f != opened:
			return fmt.Errorf("%s was replaced by another file while it is open", path)
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
