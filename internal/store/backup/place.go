package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/blobstore"
)

// The names of backups sort by the time of the backup.
const (
	nameTime = "20060102T150405Z"
	// keySuffix is the suffix of the object with the key-encryption key of a backup.
	keySuffix = ".kek"
)

var nameForm = regexp.MustCompile(`^keyserver-([0-9]{1,10})-([0-9]{8}T[0-9]{6}Z)\.age$`)

// Name returns the name of a backup of a key server; at is when the backup began.
func Name(system keyserver.SystemID, at time.Time) string {
	return fmt.Sprintf("keyserver-%d-%s.age", system, at.UTC().Format(nameTime))
}

// KeyName returns the name of the object with the key-encryption key of a backup.
func KeyName(name string) string { return name + keySuffix }

// Entry is a stored backup.
type Entry struct {
	Name   string
	System keyserver.SystemID
	Begun  time.Time
	Size   int64
}

// Place is a destination: a directory or bucket of backups or of a replica.
type Place struct{ *blobstore.Store }

// CheckPlace rejects a text that is neither the path of a directory nor the URL of a supported object store.
func CheckPlace(text string) error {
	if !isURL(text) {
		if text == "" {
			return errors.New("name a directory, or file:///DIRECTORY, s3://BUCKET, gs://BUCKET or azblob://CONTAINER")
		}
		return nil
	}
	return blobstore.CheckURL(text)
}

func isURL(text string) bool { return strings.Contains(text, "://") }

// OpenPlace opens a directory or a bucket. If create is set, it creates a missing directory.
func OpenPlace(ctx context.Context, text string, create bool) (Place, error) {
	if err := CheckPlace(text); err != nil {
		return Place{}, err
	}
	if !isURL(text) {
		dir, err := filepath.Abs(text)
		if err != nil {
			return Place{}, err
		}
		u := url.URL{Scheme: "file", Path: dir}
		if create {
			u.RawQuery = "create_dir=true"
		}
		text = u.String()
	}
	s, err := blobstore.Open(ctx, text)
	if err != nil {
		return Place{}, fmt.Errorf("open the place of backups: %w", err)
	}
	return Place{s}, nil
}

// List lists the backups of one key server, or of all key servers if system is zero. The
// oldest backup is first. It ignores other objects.
func (p Place) List(ctx context.Context, system keyserver.SystemID) ([]Entry, error) {
	var all []Entry
	err := p.Each(ctx, func(o blobstore.Object) error {
		parts := nameForm.FindStringSubmatch(o.Name)
		if parts == nil {
			return nil
		}
		n, err := strconv.ParseUint(parts[1], 10, 32)
		at, wrong := time.Parse(nameTime, parts[2])
		if err != nil || wrong != nil || system != 0 && keyserver.SystemID(n) != system {
			return nil //nolint:nilerr // not a name of ours
		}
		all = append(all, Entry{o.Name, keyserver.SystemID(n), at, o.Size})
		return nil
	})
	slices.SortFunc(all, func(a, b Entry) int { return a.Begun.Compare(b.Begun) })
	return all, err
}

// OwnerName returns the name of the object that identifies the key server to which a destination belongs.
func OwnerName(system keyserver.SystemID) string { return fmt.Sprintf("keyserver-%d.vkey", system) }

// maxOwner is the maximum size in bytes of the object that OwnerName names.
const maxOwner = 4096

// Claim reserves this destination for a key server with a system id. key verifies the checkpoints of the key server.
// Claim fails if a key server with another key has claimed the destination for this system id. Claim prevents mistakes,
// not attacks: any process with write access can replace the object OwnerName.
func (p Place) Claim(ctx context.Context, system keyserver.SystemID, key string) error {
	name := OwnerName(system)
	for range 2 {
		is, err := p.owner(ctx, name)
		switch {
		case err != nil:
			return fmt.Errorf("read %s: %w", name, err)
		case is == nil:
			if _, err := p.Put(ctx, name, func(w io.Writer) error { _, err := io.WriteString(w, key+"\n"); return err }); err != nil {
				return fmt.Errorf("write %s: %w", name, err)
			}
		case strings.TrimSpace(string(is)) == key:
			return nil
		default:
			return fmt.Errorf("the place belongs to another key server with the system id %d: the key in %s there is not %s; "+
				"give each key server its own place; nothing was written or removed there", system, name, key)
		}
	}
	return fmt.Errorf("%s was written, but is missing", name)
}

func (p Place) owner(ctx context.Context, name string) (_ []byte, err error) {
	r, _, err := p.Get(ctx, name)
	if err != nil || r == nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return io.ReadAll(io.LimitReader(r, maxOwner))
}

// Save writes a backup. It fails if the name exists.
func (p Place) Save(ctx context.Context, name string, fill func(io.Writer) error) (size int64, err error) {
	done, err := p.Put(ctx, name, func(w io.Writer) error {
		counted := &counter{to: w}
		defer func() { size = counted.n }()
		return fill(counted)
	})
	if err == nil && !done {
		err = fmt.Errorf("%s exists already", name)
	}
	return size, err
}

type counter struct {
	to io.Writer
	n  int64
}

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	return n, err
}

// Found is an open backup to restore.
type Found struct {
	Name string
	From io.ReadCloser
	// Skipped are empty objects with the name of a backup.
	Skipped []string
	// Key opens the key-encryption key that is stored with the backup. It returns nil if there is none.
	Key func(ctx context.Context) (io.ReadCloser, error)
}

// Find opens a backup. from is a file, or a directory or bucket that contains the backup name.
// Without a name, Find opens the newest backup.
func Find(ctx context.Context, from, name string) (Found, error) {
	if !isURL(from) {
		info, err := os.Stat(from)
		if err != nil {
			return Found{}, err
		}
		if !info.IsDir() {
			if name != "" && name != filepath.Base(from) {
				return Found{}, fmt.Errorf("%s is a backup itself, not a place that contains %s", from, name)
			}
			from, name = filepath.Dir(from), filepath.Base(from)
		}
	}
	place, err := OpenPlace(ctx, from, false)
	if err != nil {
		return Found{}, err
	}
	var passed []string
	if name == "" {
		if name, passed, err = place.newest(ctx); err != nil {
			return Found{}, errors.Join(err, place.Close())
		}
	}
	r, _, err := place.Get(ctx, name)
	if err == nil && r == nil {
		err = fmt.Errorf("there is no %s", name)
	}
	if err != nil {
		return Found{}, errors.Join(err, place.Close())
	}
	return Found{Name: name, From: both{r, place}, Skipped: passed, Key: func(ctx context.Context) (io.ReadCloser, error) {
		key, _, err := place.Get(ctx, KeyName(name))
		return key, err
	}}, nil
}

// NewerThan reports whether a destination has a backup that was begun after a time.
func NewerThan(ctx context.Context, from string, at time.Time) (newer bool, err error) {
	place, err := OpenPlace(ctx, from, false)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, place.Close()) }()
	all, _, err := place.candidates(ctx)
	return len(all) > 0 && all[len(all)-1].Begun.After(at), err
}

// clockAhead is how far the time in the name of a backup or segment may be in the future. A
// later time comes from a wrong clock or from another program.
const clockAhead = 5 * time.Minute

// candidates returns the backups from which newest chooses, and the names of empty backups. It omits backups with a
// time in the future, but keeps at least one backup. With --backup, a user can still choose an omitted backup.
func (p Place) candidates(ctx context.Context) (all []Entry, passed []string, err error) {
	all, err = p.List(ctx, 0)
	all = slices.DeleteFunc(all, func(k Entry) bool {
		if k.Size == 0 {
			passed = append(passed, k.Name)
		}
		return k.Size == 0
	})
	limit := time.Now().Add(clockAhead)
	for len(all) > 1 && all[len(all)-1].Begun.After(limit) {
		all = all[:len(all)-1]
	}
	return all, passed, err
}

func (p Place) newest(ctx context.Context) (name string, passed []string, err error) {
	all, passed, err := p.candidates(ctx)
	if err != nil {
		return "", nil, err
	}
	if len(all) == 0 {
		if len(passed) > 0 {
			return "", nil, fmt.Errorf("there is no backup: %s is empty", strings.Join(passed, ", "))
		}
		return "", nil, errors.New("there is no backup")
	}
	last := all[len(all)-1]
	for _, k := range all {
		if k.System != last.System {
			return "", nil, fmt.Errorf("there are backups of the key servers %d and %d; choose one with --backup NAME, for example %s", k.System, last.System, last.Name)
		}
	}
	return last.Name, passed, nil
}

type both struct {
	io.ReadCloser
	place Place
}

// Close implements io.Closer.
func (b both) Close() error { return errors.Join(b.ReadCloser.Close(), b.place.Close()) }
