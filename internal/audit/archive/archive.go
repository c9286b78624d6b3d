// Package archive keeps the rows of the audit trail outside the database: in a
// directory or a bucket, segment by segment, each with the checkpoint that covers
// it. Whoever has the archive and the key of the log can verify it, on any machine,
// without the key server (docs/adr/0045-years-of-the-trail.md).
package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob" // azblob:
	"gocloud.dev/blob/fileblob"
	_ "gocloud.dev/blob/gcsblob" // gs:
	_ "gocloud.dev/blob/s3blob"  // s3:
	"gocloud.dev/gcerrors"
	"golang.org/x/sys/unix"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
)

// Rows is how many rows a segment has: a whole subtree of the audit tree.
const (
	Rows          = audit.SegmentRows
	segmentHeight = 16
)

// maxSmall bounds what is read of a manifest or a checkpoint.
const maxSmall = 1 << 16

// Archive is where segments are. It is safe for concurrent use.
type Archive struct {
	bucket *blob.Bucket
	dir    string // of file://, else empty
}

// CheckURL refuses a URL that can be none of an archive. Its errors do not repeat it,
// because it may hold what is secret.
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
			return errors.New("the URL of a directory must be file:///DIRECTORY, with ?create_dir=true where it is to be made")
		}
	}
	return errURL
}

var errURL = errors.New("the URL must be file:///DIRECTORY, s3://BUCKET, gs://BUCKET or azblob://CONTAINER")

// Open opens an archive.
func Open(ctx context.Context, text string) (*Archive, error) {
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
			return nil, fmt.Errorf("open the audit archive: %w", err)
		}
		return &Archive{bucket: bucket}, nil
	}
	bucket, err := fileblob.OpenBucket(u.Path, &fileblob.Options{
		CreateDir: u.Query().Get("create_dir") != "", DirFileMode: 0o700, Metadata: fileblob.MetadataDontWrite,
	})
	if err != nil {
		return nil, fmt.Errorf("open the audit archive: %w", err)
	}
	return &Archive{bucket: bucket, dir: u.Path}, nil
}

// Close gives up what Open took.
func (a *Archive) Close() error { return a.bucket.Close() }

// put writes an object that is not there yet, durably and as a whole, and answers false
// where there is one.
func (a *Archive) put(ctx context.Context, name string, fill func(io.Writer) error) (bool, error) {
	if a.dir != "" {
		if _, err := os.Lstat(filepath.Join(a.dir, name)); !errors.Is(err, os.ErrNotExist) {
			return false, err
		}
		return a.putFile(name, fill)
	}
	if there, err := a.bucket.Exists(ctx, name); err != nil || there {
		return false, err
	}
	// Ending the context is how a write is given up.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := a.bucket.NewWriter(ctx, name, &blob.WriterOptions{IfNotExist: true, ContentType: "application/octet-stream"})
	if err != nil {
		return false, err
	}
	if err := fill(w); err != nil {
		cancel()
		_ = w.Close() // says that it was cancelled
		return false, err
	}
	err = w.Close()
	if gcerrors.Code(err) == gcerrors.FailedPrecondition {
		return false, nil
	}
	return err == nil, err
}

// putFile is put in a directory. fileblob neither syncs nor keeps an object from being
// replaced by one that is written at the same time.
func (a *Archive) putFile(name string, fill func(io.Writer) error) (done bool, err error) {
	f, err := os.CreateTemp(a.dir, name+".*"+unfinished) // 0600
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
	object := filepath.Join(a.dir, name)
	err = os.Link(f.Name(), object)
	if errors.Is(err, os.ErrNotExist) { // another process was first, and has removed it
		_, err = os.Stat(object)
		return false, err
	}
	if errors.Is(err, os.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := a.forget(name); err != nil {
		return false, err
	}
	dir, err := os.Open(a.dir)
	if err != nil {
		return false, err
	}
	err = errors.Join(dir.Sync(), dir.Close())
	return err == nil, err
}

// unfinished is how names end of files that have no name of an object yet.
const unfinished = ".new"

// forget removes what a process that was killed has left of an object, once it is there:
// another process may be at the same one.
func (a *Archive) forget(name string) error {
	left, err := filepath.Glob(filepath.Join(a.dir, name+".*"+unfinished))
	for _, path := range left {
		err = errors.Join(err, remove(path))
	}
	return err
}

// remove removes a file, if it is still there.
func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// object opens an object, and answers nil where there is none.
func (a *Archive) object(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	if a.dir != "" {
		return a.file(name)
	}
	r, err := a.bucket.NewReader(ctx, name, nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	return r, r.Size(), nil
}

// file is object in a directory. Whoever can write there may have put a pipe, which
// would be waited for, or a link.
func (a *Archive) file(name string) (io.ReadCloser, int64, error) {
	f, err := os.OpenFile(filepath.Join(a.dir, name), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, nil
	}
	if errors.Is(err, unix.ELOOP) {
		return nil, 0, damaged("%s is no file", name)
	}
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = damaged("%s is no file", name)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// get reads a small object. It answers nil where there is none.
func (a *Archive) get(ctx context.Context, name string) (content []byte, err error) {
	r, _, err := a.object(ctx, name)
	if err != nil || r == nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	content, err = io.ReadAll(io.LimitReader(r, maxSmall+1))
	if err == nil && len(content) > maxSmall {
		err = damaged("%s is larger than any such object", name)
	}
	return content, err
}

// each calls with the first row of each segment, in their order.
func (a *Archive) each(ctx context.Context, segment func(first int64) error) error {
	if a.dir != "" {
		return a.eachFile(segment)
	}
	list := a.bucket.List(&blob.ListOptions{Delimiter: "/"})
	for {
		object, err := list.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list the audit archive: %w", err)
		}
		if first := firstOf(object.Key); first > 0 {
			if err := segment(first); err != nil {
				return err
			}
		}
	}
}

// eachFile is each in a directory. fileblob would open what it lists.
func (a *Archive) eachFile(segment func(first int64) error) error {
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		return fmt.Errorf("list the audit archive: %w", err)
	}
	for _, e := range entries {
		if first := firstOf(e.Name()); first > 0 {
			if err := segment(first); err != nil {
				return err
			}
		}
	}
	return nil
}
