package rig

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"testing"
)

// Packed is a file in an archive.
type Packed struct {
	Text string
	Mode int64
}

// Unpacked returns the files of a .tar.gz by name.
func Unpacked(t testing.TB, archive []byte) map[string]Packed {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(archive))
	Must(t, err)
	files := map[string]Packed{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		Must(t, err)
		text, err := io.ReadAll(r)
		Must(t, err)
		files[h.Name] = Packed{string(text), h.Mode}
	}
}
