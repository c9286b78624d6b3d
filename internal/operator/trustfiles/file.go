package trustfiles

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// fileMode allows the key server's container to read the file, which may run as another user. The content is public.
const fileMode = 0o644

// replace writes a file atomically if its content differs. It returns whether the content has changed.
func replace(path string, content []byte) (changed bool, err error) {
	switch have, err := readBounded(path); {
	case err == nil && bytes.Equal(have, content):
		return false, nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return false, err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return false, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	if _, err = tmp.Write(content); err != nil {
		return false, errors.Join(err, tmp.Close())
	}
	if err = errors.Join(tmp.Chmod(fileMode), tmp.Sync(), tmp.Close()); err != nil {
		return false, err
	}
	return true, os.Rename(tmp.Name(), path)
}

// maxBytes limits the size of every file and response.
const maxBytes = 1 << 20

func readBounded(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read: no data can be lost
	content, err := io.ReadAll(io.LimitReader(file, maxBytes+1))
	if err == nil && len(content) > maxBytes {
		return nil, fmt.Errorf("%s exceeds %d bytes", path, maxBytes)
	}
	return content, err
}
