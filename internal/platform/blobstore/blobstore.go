// Package blobstore stores objects outside the database: as files in a directory, or in a
// cloud bucket. Writes are durable and atomic.
package blobstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/gcerrors"
	"golang.org/x/sys/unix"
)

// ErrNoFile is the error if the name of an object belongs to a pipe, a link or a directory.
var ErrNoFile = errors.New("is not a regular file")

// Store is a directory or bucket of objects. It is safe for concurrent use.
type Store struct {
	bucket *blob.Bucket
	dir    string // set only for file://
}

// Object describes a stored object.
type Object struct {
	Name    string
	Size    int64
	Written time.Time
}

// CheckURL returns an error if Open cannot open a URL. The error does not contain the URL, because the URL may contain
// secrets.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return errURL
	}
	switch u.Scheme {
	case "s3", "gs", "azblob":
		if u.Host != "" {
			return nil
		}
	case fileblob.Scheme:
		query := u.Query()
		query.Del("create_dir")
		switch {
		case u.Host == "" && filepath.IsAbs(u.Path) && len(query) == 0:
			return nil
		default:
			return errors.New("the URL of a directory must be file:///DIRECTORY, with ?create_dir=true to create it")
		}
	}
	return errURL
}

var errURL = errors.New("the URL must be file:///DIRECTORY, s3://BUCKET, gs://BUCKET or azblob://CONTAINER")

// Open opens the Store at a URL.
func Open(ctx context.Context, text string) (*Store, error) {
	if err := CheckURL(text); err != nil {
		return nil, err
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errURL
	}
	if u.Scheme != fileblob.Scheme {
		bucket, err := blob.OpenBucket(ctx, text)
		if err != nil {
			return nil, err
		}
		return &Store{bucket: bucket}, nil
	}
	bucket, err := fileblob.OpenBucket(u.Path, &fileblob.Options{
		CreateDir: u.Query().Get("create_dir") != "", DirFileMode: 0o700, Metadata: fileblob.MetadataDontWrite,
	})
	if err != nil {
		return nil, err
	}
	return &Store{bucket: bucket, dir: u.Path}, nil
}

// Close releases the resources of the Store.
func (s *Store) Close() error { return s.bucket.Close() }

// In returns a Store for an open bucket.
func In(bucket *blob.Bucket) *Store { return &Store{bucket: bucket} }

// Put writes a new object durably and atomically. fill writes the content. Put returns false if the object already
// exists.
func (s *Store) Put(ctx context.Context, name string, fill func(io.Writer) error) (bool, error) {
	if s.dir != "" {
		if _, err := os.Lstat(filepath.Join(s.dir, name)); !errors.Is(err, os.ErrNotExist) {
			return false, err
		}
		return s.putFile(name, fill)
	}
	if there, err := s.bucket.Exists(ctx, name); err != nil || there {
		return false, err
	}
	// Cancelling the context aborts the write.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := s.bucket.NewWriter(ctx, name, &blob.WriterOptions{IfNotExist: true, ContentType: "application/octet-stream"})
	if err != nil {
		return false, err
	}
	if err := fill(w); err != nil {
		cancel()
		_ = w.Close() // Close returns the error of the cancellation
		return false, err
	}
	err = w.Close()
	if gcerrors.Code(err) == gcerrors.FailedPrecondition {
		return false, nil
	}
	return err == nil, err
}

// putFile implements Put for a directory. It does not use fileblob: fileblob does not sync, and with fileblob a
// concurrent write could replace an object.
func (s *Store) putFile(name string, fill func(io.Writer) error) (done bool, err error) {
	f, err := os.CreateTemp(s.dir, name+".*"+unfinished) // mode 0600
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, remove(f.Name())) }()
	err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return false, err
	}
	object := filepath.Join(s.dir, name)
	err = os.Link(f.Name(), object)
	if errors.Is(err, os.ErrNotExist) { // another process has written the object and removed the temporary file
		_, err = os.Stat(object)
		return false, err
	}
	if errors.Is(err, os.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := s.forget(name); err != nil {
		return false, err
	}
	dir, err := os.Open(s.dir)
	if err != nil {
		return false, err
	}
	err = errors.Join(dir.Sync(), dir.Close())
	return err == nil, err
}

const unfinished = ".new"

// forget removes the temporary files of an object after the object was written. These files belong to killed processes,
// or to processes that are writing the same object now.
func (s *Store) forget(name string) error {
	left, err := filepath.Glob(filepath.Join(s.dir, name+".*"+unfinished))
	for _, path := range left {
		err = errors.Join(err, remove(path))
	}
	return err
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Get opens an object and returns its size in bytes. It returns a nil reader if there is no such object.
func (s *Store) Get(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	if s.dir != "" {
		return s.file(name)
	}
	r, err := s.bucket.NewReader(ctx, name, nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	return r, r.Size(), nil
}

// file implements Get for a directory. It rejects pipes, because opening a pipe would block. It rejects links, because
// other users of the directory may have created them.
func (s *Store) file(name string) (io.ReadCloser, int64, error) {
	f, err := os.OpenFile(filepath.Join(s.dir, name), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, nil
	}
	if errors.Is(err, unix.ELOOP) {
		return nil, 0, fmt.Errorf("%s %w", name, ErrNoFile)
	}
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s %w", name, ErrNoFile)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// Each calls found for each object, sorted by name.
func (s *Store) Each(ctx context.Context, found func(Object) error) error {
	if s.dir != "" {
		return s.eachFile(found)
	}
	list := s.bucket.List(&blob.ListOptions{Delimiter: "/"})
	for {
		object, err := list.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list the objects: %w", err)
		}
		if object.IsDir {
			continue
		}
		if err := found(Object{Name: object.Key, Size: object.Size, Written: object.ModTime}); err != nil {
			return err
		}
	}
}

// eachFile implements Each for a directory. It does not use fileblob, which would open every listed file.
func (s *Store) eachFile(found func(Object) error) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("list the objects: %w", err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, os.ErrNotExist) || e.IsDir() || strings.HasSuffix(e.Name(), unfinished) {
			continue
		}
		if err != nil {
			return err
		}
		if err := found(Object{Name: e.Name(), Size: info.Size(), Written: info.ModTime()}); err != nil {
			return err
		}
	}
	return nil
}

// Delete removes an object. It returns nil if there is none.
func (s *Store) Delete(ctx context.Context, name string) error {
	if s.dir != "" {
		return remove(filepath.Join(s.dir, name))
	}
	if err := s.bucket.Delete(ctx, name); gcerrors.Code(err) != gcerrors.NotFound {
		return err
	}
	return nil
}
