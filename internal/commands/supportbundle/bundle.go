// Package supportbundle writes a .tar.gz without secrets, for the diagnosis of an installation. An allow list names the
// packed fields (fields.go, log.go, metrics.go). The package does not search these fields for secrets.
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

// Limits of a bundle.
const (
	maxFile  = 4 << 20 // maximum bytes of a file; only the end of a longer file is packed
	maxFiles = 500
)

// Writer writes a bundle: a tar, compressed by gzip.
type Writer struct {
	ctx   context.Context //nolint:containedctx // a bundle belongs to one run of the command
	zip   *gzip.Writer
	tar   *tar.Writer
	at    time.Time
	files []Listed
	taken map[string]bool // used names, in lower case
	given []string        // credentials to remove, the longest first
}

// Listed is an entry of files.json, the last file of a bundle, which lists the other files.
type Listed struct {
	Name    string `json:"name"`
	Bytes   int    `json:"bytes"`
	LeftOut int    `json:"leftOut,omitempty"` // number of lines, attributes and metrics that the allow list does not name
	Cut     bool   `json:"cut,omitempty"`     // only the end of the file is packed
	Error   string `json:"error,omitempty"`   // reason why the file is missing or incomplete
}

// listName is the name of the file that lists the other files.
const listName = "files.json"

// New begins a bundle and writes it to to. at is the modification time of its files. After ctx ends, the Writer adds no
// file.
func New(ctx context.Context, to io.Writer, at time.Time) *Writer {
	zip := gzip.NewWriter(to)
	return &Writer{ctx: ctx, zip: zip, tar: tar.NewWriter(zip), at: at, taken: map[string]bool{listName: true}}
}

const (
	// shortest is the minimum length of a removed credential, in bytes. A shorter one may be a part of other words.
	shortest = 4
	removed  = "[left out]"
)

// Redact makes the Writer remove credentials from everything that is added later, in plain text and in JSON encoding.
// For example, an error may quote a credential that a server returned.
func (w *Writer) Redact(credentials ...string) {
	for _, credential := range credentials {
		if quoted, err := json.Marshal(credential); err == nil && len(credential) >= shortest {
			w.given = append(w.given, credential, string(quoted[1:len(quoted)-1]))
		}
	}
	// A longer credential may begin with a shorter one.
	slices.SortFunc(w.given, func(a, b string) int { return len(b) - len(a) })
}

func (w *Writer) without(text string) string {
	for _, credential := range w.given {
		text = strings.ReplaceAll(text, credential, removed)
	}
	return text
}

// sentence returns the text of an error without credentials. It reduces URLs to scheme and host.
func (w *Writer) sentence(err error) string {
	if err == nil {
		return ""
	}
	return w.without(urltext.Redact(err.Error()))
}

// ErrFull is the error for a file that would exceed the maximum number of files.
var ErrFull = fmt.Errorf("a bundle can hold at most %d files", maxFiles)

// add adds a file, or only its end if it is longer than maxFile.
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

// end returns the complete lines in the last maxFile bytes of a text.
func end(text []byte) []byte {
	_, text, _ = bytes.Cut(text[len(text)-maxFile:], []byte("\n"))
	return text
}

// JSON adds a file with the entire value, encoded as JSON.
func (w *Writer) JSON(name string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return w.add(Listed{Name: name}, append(text, '\n'))
}

// Log adds the allowed attributes of a log. why is the reason if the log is incomplete.
func (w *Writer) Log(name string, raw []byte, why error) error {
	listed := Listed{Name: name, Cut: len(raw) > maxFile, Error: w.sentence(why)}
	if listed.Cut {
		raw = end(raw)
	}
	text, leftOut := namedLog(raw)
	listed.LeftOut = leftOut
	return w.add(listed, text)
}

// Missing records in files.json why a file is missing. So the bundle of a broken installation still has the other
// files.
func (w *Writer) Missing(name string, why error) error {
	if err := w.takes(); err != nil {
		return err
	}
	w.files = append(w.files, Listed{Name: w.named(name), Error: w.sentence(why)})
	return nil
}

// takes returns an error if the bundle is full or its context has ended.
func (w *Writer) takes() error {
	if len(w.files) >= maxFiles {
		return ErrFull
	}
	return w.ctx.Err()
}

// fileTime limits the time to read one local file.
const fileTime = 10 * time.Second

// Tail adds the end of a local log file, with only the allowed attributes.
func (w *Writer) Tail(name, file string) error {
	text, err := within(w.ctx, fileTime, func() ([]byte, error) { return tail(file) })
	if err != nil {
		return w.Missing(name, err)
	}
	return w.Log(name, text, nil)
}

// within calls read, and returns an error if it takes longer than most. Some system files, such as /proc/kmsg, look
// like regular files but block until an event.
func within(ctx context.Context, most time.Duration, read func() ([]byte, error)) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("the file could not be read within %s", most))
	defer cancel()
	return await.Result(ctx, read)
}

// tail returns the last maxFile+1 bytes of a regular file. It does not wait for a pipe without a writer.
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
	// One more byte shows that the file is longer than the limit.
	if _, err := f.Seek(max(info.Size()-maxFile-1, 0), io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// named returns a safe and unique path in the bundle for a name from an untrusted source. The path has no characters
// that control a terminal.
func (w *Writer) named(name string) string {
	parts := strings.Split(w.without(name), "/")
	for i, part := range parts {
		parts[i] = label(part)
	}
	name = strings.Join(parts, "/")
	free := name
	for n := 2; w.taken[strings.ToLower(free)]; n++ { // some file systems ignore case
		free = name + "~" + strconv.Itoa(n)
	}
	w.taken[strings.ToLower(free)] = true
	return free
}

// maxLabel is the maximum length of one part of a path, in bytes. Every file system allows longer names.
const maxLabel = 200

// label returns a name as one part of a path. Unusual bytes are encoded in hexadecimal. Of a long name only the end
// stays, which has the file extension.
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

// write writes one file to the archive. The name must come from named, or be listName.
func (w *Writer) write(name string, text []byte) error {
	err := w.tar.WriteHeader(&tar.Header{Name: "support-bundle/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: w.at})
	if err == nil {
		_, err = w.tar.Write(text)
	}
	return err
}

// Close adds the list of files and ends the bundle.
func (w *Writer) Close() error {
	text, err := json.MarshalIndent(w.files, "", "  ")
	if err == nil {
		err = w.write(listName, append(text, '\n'))
	}
	return errors.Join(w.ctx.Err(), err, w.tar.Close(), w.zip.Close())
}

// Files returns the entries that the bundle has so far.
func (w *Writer) Files() []Listed { return w.files }
