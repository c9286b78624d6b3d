package manifest

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Bounds on what is read.
const (
	maxFile      = 64 << 20
	maxManifests = 100_000
)

// Stdin is the path that stands for standard input.
const Stdin = "-"

// Source is where a manifest stands.
type Source struct {
	File     string
	Document int // counted from 1
	Line     int // of the file, where the document begins
}

// String names the place.
func (s Source) String() string {
	return fmt.Sprintf("%s, document %d (line %d)", s.File, s.Document, s.Line)
}

// Manifest is one object as it stands in a file.
type Manifest struct {
	Source Source
	Object *unstructured.Unstructured
}

// Read reads the manifests of files and, recursively, of directories, in the
// order of the paths and then of the file names. A directory's files are those
// that end in .yaml, .yml or .json. Its errors name the place and quote
// nothing: a path may be that of a secret by mistake.
func Read(paths []string, stdin io.Reader) ([]Manifest, error) {
	var all []Manifest
	for _, path := range paths {
		files, err := filesOf(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			content, err := contentOf(file, stdin)
			if err != nil {
				return nil, err
			}
			if all, err = parse(all, file, content); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

func filesOf(path string) ([]string, error) {
	if path == Stdin {
		return []string{Stdin}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := len(entry.Name()) > 1 && entry.Name()[0] == '.' && name != path
		switch {
		case hidden && entry.IsDir():
			return filepath.SkipDir
		case hidden, entry.IsDir():
		case slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)):
			files = append(files, name)
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s holds no file that ends in .yaml, .yml or .json", path)
	}
	return files, err
}

func contentOf(file string, stdin io.Reader) ([]byte, error) {
	in := stdin
	if file != Stdin {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close() //nolint:errcheck // it was only read
		in = f
	}
	content, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(content) > maxFile {
		return nil, fmt.Errorf("%s is longer than %d bytes", file, maxFile)
	}
	return content, nil
}

// parse appends what the documents of one file are.
func parse(all []Manifest, file string, content []byte) ([]Manifest, error) {
	if file == Stdin {
		file = "standard input"
	}
	content, err := utf8Text(content)
	if err != nil {
		return nil, fmt.Errorf("%s %w", file, err)
	}
	n := 0
	for _, p := range parts(content) {
		for _, d := range documents(p) {
			n++
			at := Source{File: file, Document: n, Line: d.line}
			found, err := d.objects()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", at, err)
			}
			if len(all)+len(found) > maxManifests {
				return nil, fmt.Errorf("%s: more than %d manifests; give them in several runs", at, maxManifests)
			}
			for _, u := range found {
				all = append(all, Manifest{Source: at, Object: u})
			}
		}
	}
	return all, nil
}

// flatten takes lists apart.
func flatten(object map[string]any) ([]*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: object}
	for _, member := range []string{"apiVersion", "kind"} {
		if value, is := object[member].(string); !is || value == "" {
			return nil, fmt.Errorf("is not a manifest: %s is missing or no text", member)
		}
	}
	items, list := object["items"].([]any)
	if !list || !strings.HasSuffix(u.GetKind(), "List") {
		return []*unstructured.Unstructured{u}, nil
	}
	var all []*unstructured.Unstructured
	for i, item := range items {
		inner, is := item.(map[string]any)
		if !is {
			return nil, fmt.Errorf("items[%d] is not a manifest", i)
		}
		found, err := flatten(inner)
		if err != nil {
			return nil, fmt.Errorf("items[%d] %w", i, err)
		}
		all = append(all, found...)
	}
	return all, nil
}
