package supportbundle

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"
)

// data are the files by which a data directory of a key server is known.
var data = []string{"keyserver.db", "kek", "bootstrap-password", "bootstrap-officer-password"}

// keyFiles are names of files that hold keys, passwords or sessions, and no log.
var (
	keyFiles    = slices.Concat(data, []string{"identity", "identity.txt", ".netrc", ".pgpass", "shadow"})
	keyEndings  = []string{".key", ".kek", ".session", ".pem", ".p12", ".pfx", ".ppk", ".jks", ".age", ".kubeconfig"}
	keyPrefixes = []string{"id_", "keyserver.db"}
)

// refusedByName says why a file is not packed as a log, by its path, from which all links are
// resolved; else it is empty.
func refusedByName(path string) string {
	name := strings.ToLower(filepath.Base(path))
	is := func(list []string, as func(string, string) bool) bool {
		return slices.ContainsFunc(list, func(one string) bool { return as(name, one) })
	}
	if slices.Contains(keyFiles, name) || is(keyEndings, strings.HasSuffix) || is(keyPrefixes, strings.HasPrefix) {
		return "its name is that of a key, a password, a session or a database"
	}
	for _, file := range data {
		if _, err := os.Lstat(filepath.Join(filepath.Dir(path), file)); err == nil {
			return "it is in the data directory of a key server"
		}
	}
	return ""
}

// Bounds of what is looked at of a file.
const (
	headOfFile = 4 << 10
	anySecret  = 8 // what is shorter lets nobody in
)

// refusedByHead says why a file is not packed as a log, by its first bytes; whole: there are no others.
func refusedByHead(head []byte, whole bool) string {
	text := bytes.TrimSpace(head)
	switch {
	case bytes.HasPrefix(head, []byte("SQLite format 3\x00")):
		return "it is a database"
	case bytes.HasPrefix(text, []byte("-----BEGIN ")) || bytes.Contains(lower(head), []byte("age-secret-key-")):
		return "it is a key or a certificate"
	case !whole || len(text) < anySecret:
		return ""
	case !utf8.Valid(text):
		return "it is no text"
	case !bytes.ContainsAny(text, " \t{["):
		return "it is one word, or words below each other, as passwords and keys are"
	}
	return ""
}

// openLog opens a file to be packed. It is judged by where it is, all links resolved, and by what
// is in it: links may lead to what is no log, and a file may have two names.
func openLog(file string) (_ *os.File, err error) {
	path, err := filepath.EvalSymlinks(file)
	if err != nil {
		return nil, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0) // a pipe is not waited for
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	opened, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !opened.Mode().IsRegular() {
		return nil, errors.New(filepath.Base(file) + " is no regular file")
	}
	// A directory on the way may have become a link since.
	now, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if again, err := filepath.EvalSymlinks(path); err != nil || again != path || !os.SameFile(opened, now) {
		return nil, errors.Join(errors.New(filepath.Base(file)+" was replaced while it was looked at"), err)
	}
	why := refusedByName(path)
	if why == "" {
		head := make([]byte, headOfFile)
		n, err := f.ReadAt(head, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		why = refusedByHead(head[:n], opened.Size() <= headOfFile)
	}
	if why != "" {
		return nil, errors.New(filepath.Base(file) + " is not packed: " + why)
	}
	return f, nil
}
