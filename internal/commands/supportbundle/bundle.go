// Package supportbundle packs what somebody who helps has to see of an installation, and nothing
// that would let him in. What goes in is chosen so that it has no secrets; whatever looks
// like one all the same is crossed out.
package supportbundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/await"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/urltext"
)

// Bounds of a bundle.
const (
	maxFile  = 4 << 20 // of each file; of a log, its end
	maxFiles = 500
)

// Writer writes a bundle: a tar, compressed by gzip.
type Writer struct {
	ctx   context.Context //nolint:containedctx // of the one run that a bundle is of
	zip   *gzip.Writer
	tar   *tar.Writer
	at    time.Time
	files []Listed
	taken map[string]bool // names that are given, in lower case
	never [][]byte        // spellings of secrets that are known
}

// Listed is a file of the bundle, as its last one lists them.
type Listed struct {
	Name    string `json:"name"`
	Bytes   int    `json:"bytes"`
	Crossed int    `json:"crossedOut,omitempty"` // what looked like a secret
	Cut     bool   `json:"cut,omitempty"`        // only its end is there
	Error   string `json:"error,omitempty"`      // why there is nothing, or not all of it
}

// listName is that of the list of files.
const listName = "files.json"

// New begins a bundle, of the files of which at is the time. It takes none when the context
// has ended.
func New(ctx context.Context, to io.Writer, at time.Time) *Writer {
	zip := gzip.NewWriter(to)
	return &Writer{ctx: ctx, zip: zip, tar: tar.NewWriter(zip), at: at, taken: map[string]bool{listName: true}}
}

// Never has secrets that are known crossed out of whatever is added from now on, in whatever
// spelling, even where nothing says that they are secrets.
func (w *Writer) Never(secrets ...string) {
	for _, secret := range secrets {
		w.never = append(w.never, spellingsOf(secret)...)
	}
}

// clean is one line of ours, or a name that somebody gave, without what looks like a secret.
func (w *Writer) clean(text string) string {
	out, _, err := CrossOut(w.ctx, []byte(text), w.never...)
	if err != nil {
		return crossedOut
	}
	return string(out)
}

// ErrFull says that the bundle takes no more files.
var ErrFull = fmt.Errorf("a bundle has at most %d files", maxFiles)

// Text adds a file. Of one that is too long it has the end.
func (w *Writer) Text(name string, text []byte) error { return w.Part(name, text, nil) }

// Part adds what could be had of a file, and why that is not all of it.
func (w *Writer) Part(name string, text []byte, why error) error {
	if err := w.takes(); err != nil {
		return err
	}
	var listed Listed
	if why != nil {
		listed.Error = w.clean(urltext.Redact(why.Error()))
	}
	if len(text) > maxFile {
		// The first line was cut through, and perhaps a secret in it. It may be all there is.
		_, text, _ = bytes.Cut(text[len(text)-maxFile:], []byte("\n"))
		listed.Cut = true
	}
	var err error
	if text, listed.Crossed, err = CrossOut(w.ctx, text, w.never...); err != nil {
		return err
	}
	listed.Name, listed.Bytes = w.named(name), len(text)
	w.files = append(w.files, listed)
	return w.write(listed.Name, text)
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
	if err := w.takes(); err != nil {
		return err
	}
	w.files = append(w.files, Listed{Name: w.named(name), Error: w.clean(urltext.Redact(why.Error()))})
	return nil
}

// takes says why no more files are taken.
func (w *Writer) takes() error {
	if len(w.files) >= maxFiles {
		return ErrFull
	}
	return w.ctx.Err()
}

// fileTime bounds what a file of the machine takes to be read.
const fileTime = 10 * time.Second

// Tail adds the end of a file of the machine.
func (w *Writer) Tail(name, file string) error {
	text, err := within(w.ctx, fileTime, func() ([]byte, error) { return tail(file) })
	if err != nil {
		return w.Missing(name, err)
	}
	return w.Text(name, text)
}

// within gives up a read that takes too long: of the system some files look like any other,
// and have nothing to read until something happens.
func within(ctx context.Context, most time.Duration, read func() ([]byte, error)) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("it could not be read within %s", most))
	defer cancel()
	return await.Answer(ctx, read)
}

func tail(file string) (_ []byte, err error) {
	f, err := openLog(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// One byte more than is kept, so that it is seen to be cut.
	if _, err := f.Seek(max(info.Size()-maxFile-1, 0), io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// named makes of a name one that leads nowhere but into the bundle, whoever gave it, that a
// terminal does not act upon, and that no other file has.
func (w *Writer) named(name string) string {
	parts := strings.Split(w.clean(name), "/")
	for i, part := range parts {
		parts[i] = label(part)
	}
	name = strings.Join(parts, "/")
	free := name
	for n := 2; w.taken[strings.ToLower(free)]; n++ { // there are disks to which a and A are the same
		free = name + "~" + strconv.Itoa(n)
	}
	w.taken[strings.ToLower(free)] = true
	return free
}

// maxLabel is less than any file system takes.
const maxLabel = 200

// label is a name of one part. What names of Kubernetes and of files do not usually have is
// written in hexadecimal; of one that is too long there is the end, which says what it is.
func label(name string) string {
	if name == "" || name == "." || name == ".." {
		return "%" + strings.Repeat("2E", len(name))
	}
	var b strings.Builder
	for _, c := range []byte(name) {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("._-+=@,%()[] ", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()[max(b.Len()-maxLabel, 0):]
}

// write has a name of named, or that of the list.
func (w *Writer) write(name string, text []byte) error {
	err := w.tar.WriteHeader(&tar.Header{Name: "support-bundle/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: w.at})
	if err == nil {
		_, err = w.tar.Write(text)
	}
	return err
}

// Close adds the list of what is in the bundle, and ends it.
func (w *Writer) Close() error {
	text, err := json.MarshalIndent(w.files, "", "  ")
	if err == nil {
		err = w.write(listName, append(text, '\n'))
	}
	return errors.Join(w.ctx.Err(), err, w.tar.Close(), w.zip.Close())
}

// Files are those that the bundle has so far.
func (w *Writer) Files() []Listed { return w.files }
