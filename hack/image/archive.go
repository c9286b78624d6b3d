package main

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// archive writes the files of a directory to a tar file. Identical files result in identical bytes. The archive has its
// final name only after it is complete.
func archive(dir, to string) (err error) {
	made, err := os.CreateTemp(filepath.Dir(to), filepath.Base(to)+".*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoreGone(os.Remove(made.Name()))) }()
	w := tar.NewWriter(made)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return addFile(w, path, filepath.ToSlash(relative))
	})
	if err := errors.Join(err, w.Close(), made.Chmod(0o644), made.Close()); err != nil {
		return err
	}
	return os.Rename(made.Name(), to)
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func addFile(w *tar.Writer, path, name string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	about, err := f.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: about.Size(), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}
