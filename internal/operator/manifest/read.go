package manifest

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/await"
)

// Bounds on the input.
const (
	maxFile      = 64 << 20
	maxManifests = 100_000
)

// Stdin is the path for standard input.
const Stdin = "-"

// Source is the place of a manifest.
type Source struct {
	File     string
	Document int // number of the document in the file, from 1
	Line     int // line number in the file where the document begins
}

// String formats the position for messages.
func (s Source) String() string {
	return fmt.Sprintf("%s, document %d (line %d)", s.File, s.Document, s.Line)
}

// Manifest is one object that was read from a file.
type Manifest struct {
	Source Source
	Object *unstructured.Unstructured
}

// Read reads manifests from files and, recursively, directories, in the order of paths and then of file names. In
// directories it reads the files that end in .yaml, .yml or .json. Errors give the position and quote nothing, because
// a path may name a secret file by mistake. Read ends when ctx ends, even while it reads a pipe.
func Read(ctx context.Context, paths []string, stdin io.Reader) ([]Manifest, error) {
	var all []Manifest
	for _, path := range paths {
		files, err := filesOf(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			content, err := await.Result(ctx, func() ([]byte, error) { return contentOf(file, stdin) })
			switch {
			case err != nil && ctx.Err() != nil:
				return nil, interrupted(ctx, file)
			case err != nil:
				return nil, err
			}
			if all, err = parse(ctx, all, file, content); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

func interrupted(ctx context.Context, file string) error {
	return fmt.Errorf("reading %s was interrupted: %w", shown(file), ctx.Err())
}

// shown returns the name of a path in messages.
func shown(file string) string {
	if file == Stdin {
		return "standard input"
	}
	return file
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
	files, err := filesBelow(path)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no file that ends in .yaml, .yml or .json", path)
	}
	return files, err
}

// filesBelow lists the files of a directory. The directory itself may be a symbolic link. Links to directories below it
// are not followed, because they could form a cycle.
func filesBelow(dir string) ([]string, error) {
	var files []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		at := filepath.Join(dir, name)
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		hidden := len(entry.Name()) > 1 && entry.Name()[0] == '.'
		switch {
		case hidden && entry.IsDir():
			return fs.SkipDir
		case hidden, entry.IsDir():
			return nil
		case !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)):
			return nil
		}
		files = append(files, at)
		return regular(at)
	})
	return files, err
}

// regular returns an error if an entry with the name of a manifest file is not a file. If it were ignored, manifests
// could be missing silently.
func regular(file string) error {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a link to a directory, and such links are not followed; pass the directory itself", file)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file; pass a pipe or a device by its own path", file)
	}
	return nil
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
		return nil, fmt.Errorf("%s: %w", shown(file), err)
	}
	if len(content) > maxFile {
		return nil, fmt.Errorf("%s is longer than %d bytes", shown(file), maxFile)
	}
	return content, nil
}

// parse appends the manifests in the documents of one file.
func parse(ctx context.Context, all []Manifest, file string, content []byte) ([]Manifest, error) {
	content, err := utf8Text(content)
	if err != nil {
		return nil, fmt.Errorf("%s %w", shown(file), err)
	}
	n := 0
	for _, p := range parts(content) {
		for _, d := range documents(p) {
			if ctx.Err() != nil {
				return nil, interrupted(ctx, file)
			}
			n++
			at := Source{File: shown(file), Document: n, Line: d.line}
			found, err := d.objects()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", at, err)
			}
			if len(all)+len(found) > maxManifests {
				return nil, fmt.Errorf("%s: more than %d manifests; use several runs", at, maxManifests)
			}
			for _, u := range found {
				all = append(all, Manifest{Source: at, Object: u})
			}
		}
	}
	return all, nil
}

// flatten returns the items of a list, recursively, or the object itself.
func flatten(object map[string]any) ([]*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: object}
	for _, member := range []string{"apiVersion", "kind"} {
		if value, is := object[member].(string); !is || value == "" {
			return nil, fmt.Errorf("is not a manifest: %s is missing or not text", member)
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
