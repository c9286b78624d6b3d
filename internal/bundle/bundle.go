// Package bundle packs what somebody who helps has to see of an installation, and nothing
// that would let him in. What goes in is chosen so that it has no secrets; whatever looks
// like one all the same is crossed out.
package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"syscall"
	"time"
)

// Bounds of a bundle.
const (
	maxFile  = 4 << 20 // of each file; of a log, its end
	maxFiles = 500
)

// Writer writes a bundle: a tar, compressed by gzip.
type Writer struct {
	zip   *gzip.Writer
	tar   *tar.Writer
	at    time.Time
	files []Listed
}

// Listed is a file of the bundle, as its last one lists them.
type Listed struct {
	Name    string `json:"name"`
	Bytes   int    `json:"bytes"`
	Crossed int    `json:"crossedOut,omitempty"` // what looked like a secret
	Cut     bool   `json:"cut,omitempty"`        // only its end is there
	Error   string `json:"error,omitempty"`      // why there is nothing
}

// New begins a bundle, of the files of which at is the time.
func New(to io.Writer, at time.Time) *Writer {
	zip := gzip.NewWriter(to)
	return &Writer{zip: zip, tar: tar.NewWriter(zip), at: at}
}

// ErrFull says that the bundle takes no more files.
var ErrFull = fmt.Errorf("a bundle has at most %d files", maxFiles)

// Text adds a file. Of one that is too long it has the end.
func (w *Writer) Text(name string, text []byte) error {
	listed := Listed{Name: clean(name)}
	if len(text) > maxFile {
		// The first line was cut through, and perhaps a secret in it. It may be all there is.
		_, text, _ = bytes.Cut(text[len(text)-maxFile:], []byte("\n"))
		listed.Cut = true
	}
	text, listed.Crossed = CrossOut(text)
	listed.Bytes = len(text)
	return w.add(listed, text)
}

// JSON adds a file with a value.
func (w *Writer) JSON(name string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return w.Text(name, append(text, '\n'))
}

// Missing notes why a file is not there. A bundle of something that is broken has what can
// be had.
func (w *Writer) Missing(name string, why error) error {
	return w.list(Listed{Name: clean(name), Error: clean(why.Error())})
}

// Tail adds the end of a file of the machine.
func (w *Writer) Tail(name, file string) error {
	text, err := tail(file)
	if err != nil {
		return w.Missing(name, err)
	}
	return w.Text(name, text)
}

func tail(file string) (_ []byte, err error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe is not waited for
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path.Base(file))
	}
	// One byte more than is kept, so that it is seen to be cut.
	if _, err := f.Seek(max(info.Size()-maxFile-1, 0), io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

func (w *Writer) list(l Listed) error {
	if len(w.files) >= maxFiles {
		return ErrFull
	}
	w.files = append(w.files, l)
	return nil
}

func (w *Writer) add(l Listed, text []byte) error {
	if err := w.list(l); err != nil {
		return err
	}
	return w.write(l.Name, text)
}

func (w *Writer) write(name string, text []byte) error {
	err := w.tar.WriteHeader(&tar.Header{Name: path.Join("support-bundle", name), Mode: 0o600, Size: int64(len(text)), ModTime: w.at})
	if err == nil {
		_, err = w.tar.Write(text)
	}
	return err
}

// Close adds the list of what is in the bundle, and ends it.
func (w *Writer) Close() error {
	text, err := json.MarshalIndent(w.files, "", "  ")
	if err == nil {
		err = w.write("files.json", append(text, '\n'))
	}
	return errors.Join(err, w.tar.Close(), w.zip.Close())
}

// Files are those that the bundle has so far.
func (w *Writer) Files() []Listed { return w.files }
