// Package supportbundle packs a .tar.gz for the diagnosis of an
// installation, without secrets. It takes the fields that an allow list names (fields.go, log.go,
// metrics.go); it never looks for secrets in what it takes.
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
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
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
	given []string        // credentials, the longest first
}

// Listed is a file of the bundle, as its last one lists them.
type Listed struct {
	Name    string `json:"name"`
	Bytes   int    `json:"bytes"`
	LeftOut int    `json:"leftOut,omitempty"` // lines, attributes and metrics that are not named
	Cut     bool   `json:"cut,omitempty"`     // only its end is there
	Error   string `json:"error,omitempty"`   // why there is nothing, or not all of it
}

// listName is that of the list of files.
const listName = "files.json"

// New begins a bundle, of the files of which at is the time. It takes none when the context
// has ended.
func New(ctx context.Context, to io.Writer, at time.Time) *Writer {
	zip := gzip.NewWriter(to)
	return &Writer{ctx: ctx, zip: zip, tar: tar.NewWriter(zip), at: at, taken: map[string]bool{listName: true}}
}

const (
	// shortest is the length from which a credential is removed: a shorter one is a part of words.
	shortest = 4
	removed  = "[left out]"
)

// Never removes credentials of this command from everything that is added later, as they are
// and as JSON writes them: an error may quote them if a server sends them back.
func (w *Writer) Never(credentials ...string) {
	for _, credential := range credentials {
		if quoted, err := json.Marshal(credential); err == nil && len(credential) >= shortest {
			w.given = append(w.given, credential, string(quoted[1:len(quoted)-1]))
		}
	}
	// A credential can begin with another one.
	slices.SortFunc(w.given, func(a, b string) int { return len(b) - len(a) })
}

func (w *Writer) without(text string) string {
	for _, credential := range w.given {
		text = strings.ReplaceAll(text, credential, removed)
	}
	return text
}

// sentence returns the text of an error without URLs and credentials.
func (w *Writer) sentence(err error) string {
	if err == nil {
		return ""
	}
	return w.without(urltext.Redact(err.Error()))
}

// ErrFull says that the bundle takes no more files.
var ErrFull = fmt.Errorf("a bundle has at most %d files", maxFiles)

// add adds a file, or its end if it is too long.
func (w *Writer) add(listed Listed, text []byte) error {
	if err := w.takes(); err != nil {
		return err
	}
	if len(text) > maxFile {
		text, listed.Cut = end(text), true
	}
	text = []byte(w.without(string(text)))
	listed.Name, listed.Bytes = w.named(listed.Name), len(text)
	w.files = append(w.files, listed)
	return w.write(listed.Name, text)
}

// end returns the whole lines at the end of a text.
func end(text []byte) []byte {
	_, text, _ = bytes.Cut(text[len(text)-maxFile:], []byte("\n"))
	return text
}

// JSON adds a file with a value, all of which is packed.
func (w *Writer) JSON(name string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return w.add(Listed{Name: name}, append(text, '\n'))
}

// Log adds the named attributes of a log. why is the reason if the log is incomplete.
func (w *Writer) Log(name string, raw []byte, why error) error {
	listed := Listed{Name: name, Cut: len(raw) > maxFile, Error: w.sentence(why)}
	if listed.Cut {
		raw = end(raw)
	}
	text, leftOut := namedLog(raw)
	listed.LeftOut = leftOut
	return w.add(listed, text)
}

// Missing notes why a file is not there. A bundle of something that is broken has what can
// be had.
func (w *Writer) Missing(name string, why error) error {
	if err := w.takes(); err != nil {
		return err
	}
	w.files = append(w.files, Listed{Name: w.named(name), Error: w.sentence(why)})
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

// Tail adds the named attributes at the end of a log file of this machine.
func (w *Writer) Tail(name, file string) error {
	text, err := within(w.ctx, fileTime, func() ([]byte, error) { return tail(file) })
	if err != nil {
		return w.Missing(name, err)
	}
	return w.Log(name, text, nil)
}

// within gives up a read that takes too long: of the system some files look like any other,
// and have nothing to read until something happens.
func within(ctx context.Context, most time.Duration, read func() ([]byte, error)) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("it could not be read within %s", most))
	defer cancel()
	return await.Answer(ctx, read)
}

// tail does not wait for a pipe to which nobody writes.
func tail(file string) (_ []byte, err error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New(filepath.Base(file) + " is not a regular file")
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
	parts := strings.Split(w.without(name), "/")
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
