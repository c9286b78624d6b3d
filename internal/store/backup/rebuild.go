package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/wal"
)

// ahead is how many segments are opened in advance, because a bucket responds slowly.
const ahead = 16

// RestorePoint is a restore point of a replica. The replica is in a directory or bucket.
type RestorePoint struct {
	Name  string // name of the last segment
	Until time.Time
	// Skipped are empty objects with the name of a segment.
	Skipped []string

	place    Place
	segments []keptSegment // the base first
}

// FindRestorePoint returns the newest restore point that is not after the time at. from is the directory or bucket of
// the replica. If name is not empty, FindRestorePoint considers only the base of this name and its segments. Without
// name and at, it ignores restore points in the future. It returns nil if there is no replica.
func FindRestorePoint(ctx context.Context, from, name string, at time.Time) (_ *RestorePoint, err error) {
	if !isURL(from) {
		if info, err := os.Stat(from); err != nil || !info.IsDir() {
			return nil, err
		}
	}
	place, err := OpenPlace(ctx, from, false)
	if err != nil {
		return nil, err
	}
	m := &RestorePoint{place: place}
	defer func() {
		if err != nil || len(m.segments) == 0 {
			err = errors.Join(err, place.Close())
		}
	}()
	if at.IsZero() && name == "" {
		at = time.Now().Add(clockAhead)
	}
	last, err := m.lastBefore(ctx, name, at)
	if err != nil || last == nil {
		return nil, err
	}
	if err := place.eachSegment(ctx, func(k keptSegment) error {
		if k.generation == last.generation && k.number <= last.number && k.size > 0 {
			m.segments = append(m.segments, k)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	slices.SortFunc(m.segments, func(a, b keptSegment) int { return int(a.number - b.number) })
	for i, k := range m.segments {
		if k.number == int64(i) {
			continue
		}
		if k.number < int64(i) {
			return nil, fmt.Errorf("there are two segments %d of %s; remove the one that does not belong to it", k.number, k.generation)
		}
		return nil, m.missing(m.segments[:i], int64(i), k.generation)
	}
	m.Name, m.Until = last.object, last.until
	return m, nil
}

// missing returns an error that names a missing segment and an alternative restore point.
func (m *RestorePoint) missing(before []keptSegment, number int64, generation string) error {
	what := "missing"
	for _, name := range m.Skipped {
		if k, _ := segmentOf(name); k.generation == generation && k.number == number {
			what = fmt.Sprintf("missing (%s is empty)", name)
		}
	}
	return fmt.Errorf("segment %d of %s is %s; %s", number, generation, what, restoreRemedy(before))
}

// restoreRemedy returns the remedy for an error message if only the segments in before are usable.
func restoreRemedy(before []keptSegment) string {
	if len(before) > 1 {
		return fmt.Sprintf("give --at %s to restore the state before it", before[len(before)-1].until.Format(untilFlag))
	}
	return "give --at with an earlier time, or --backup with another replica or backup"
}

// untilFlag is the format of the flag --at.
const untilFlag = "2006-01-02T15:04:05.000Z07:00"

// lastBefore returns the last segment with a restore point that is not after at, or nil if there is none.
func (m *RestorePoint) lastBefore(ctx context.Context, name string, at time.Time) (*keptSegment, error) {
	var last, bare *keptSegment // bare: the last segment of the generations without a base
	var oldest time.Time
	systems, bases := map[keyserver.SystemID]string{}, map[string]bool{}
	// The names are sorted, so a base comes before its segments.
	err := m.place.eachSegment(ctx, func(k keptSegment) error {
		if name != "" && k.generation != name {
			return nil
		}
		if k.size == 0 {
			m.Skipped = append(m.Skipped, k.object)
			return nil
		}
		if k.number == 0 {
			bases[k.generation] = true
			return nil
		}
		due := at.IsZero() || !k.until.After(at)
		if !bases[k.generation] {
			if due && (bare == nil || !k.until.Before(bare.until)) {
				bare = &k
			}
			return nil
		}
		systems[k.system] = k.generation
		if oldest.IsZero() || k.until.Before(oldest) {
			oldest = k.until
		}
		if due && (last == nil || !k.until.Before(last.until)) {
			last = &k
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case len(systems) > 1:
		var each []string
		for system, generation := range systems {
			each = append(each, fmt.Sprintf("%s of key server %d", generation, system))
		}
		slices.Sort(each)
		return nil, fmt.Errorf("there are replicas of several key servers; choose one with --backup NAME, for example %s", strings.Join(each, ", "))
	case bare != nil && (last == nil || bare.until.After(last.until)):
		return nil, missingBaseError(bare, last)
	case last == nil && !oldest.IsZero():
		return nil, fmt.Errorf("there is no replica at or before %s: the oldest is of %s", at.Format(untilFlag), oldest.Format(untilFlag))
	}
	return last, nil
}

// missingBaseError returns the error for segments without a base, if they are newer than every restore point.
func missingBaseError(bare, last *keptSegment) error {
	text := "give --backup with another replica or backup"
	if last != nil {
		text = fmt.Sprintf("give --backup %s to restore an older one of %s", last.generation, last.until.Format(untilFlag))
	}
	return fmt.Errorf("%s is missing, so this replica, up to %s, cannot be restored; put it back, or %s",
		segment{Generation: bare.generation}.name(), bare.until.Format(untilFlag), text)
}

// IsGeneration reports whether a name has the form of the common name of a base and its segments.
func IsGeneration(name string) bool { return generationForm.MatchString(name) }

// Close closes the directory or bucket of the replica.
func (m *RestorePoint) Close() error { return m.place.Close() }

// Restore creates a database from the replica at the restore point. It temporarily needs space for a second copy: in
// the same directory, or, for PostgreSQL, among temporary files.
func (m *RestorePoint) Restore(ctx context.Context, identity string, o Options) (done Restored, err error) {
	identities, err := parseIdentities(strings.NewReader(identity))
	if err != nil {
		return done, err
	}
	scratch, err := sqlstore.NewScratch(o.Target)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, scratch.Close()) }()
	head, rows, err := m.rebuild(ctx, identities, filepath.Join(scratch.Dir, sqlite.DatabaseFile))
	if err != nil {
		return done, err
	}
	store, err := sqlstore.OpenCopy(ctx, scratch.Dir, rows)
	if err != nil {
		return done, err
	}
	// The copy is removed before the restored database gets its final name.
	remove := func() error { return errors.Join(store.Close(), scratch.Close()) }
	defer func() { err = errors.Join(err, remove()) }()
	return m.reload(ctx, store, head, o, remove)
}

// reload makes a backup of the rebuilt database in store and restores the backup. It calls read when store is no longer
// needed.
func (m *RestorePoint) reload(ctx context.Context, store *sqlstore.Store, head segment, o Options, read func() error) (done Restored, err error) {
	between, err := age.GenerateX25519Identity()
	if err != nil {
		return done, err
	}
	maker := &Maker{
		Store: store, System: head.System, ServerName: head.ServerName, Version: head.MadeBy, Clock: func() time.Time { return m.Until },
		KEK: func(context.Context) keyserver.KEK {
			return keyserver.KEK{Scheme: head.KEK.Scheme, Fingerprint: head.KEK.Fingerprint}
		},
	}
	r, w := io.Pipe()
	written := make(chan struct{})
	var failed error
	go func() {
		defer close(written)
		err := maker.Write(ctx, between.Recipient().String(), w)
		failed = errors.Join(err, w.CloseWithError(err))
	}()
	ended := func() error {
		_ = r.Close() // ends the writing goroutine even after an error
		<-written
		if errors.Is(failed, io.ErrClosedPipe) {
			return nil
		}
		return failed
	}
	before := o.Before
	o.Before = func() error {
		if err := errors.Join(ended(), read()); err != nil || before == nil {
			return err
		}
		return before()
	}
	defer func() {
		if failed := ended(); failed != nil {
			err = failed
		}
	}()
	from, err := Open(r, strings.NewReader(between.String()))
	if err != nil {
		return done, err
	}
	defer from.Close()
	return Restore(ctx, from, o)
}

// rebuild writes the database file, and returns the audit rows that may be in none of its tables.
func (m *RestorePoint) rebuild(ctx context.Context, identities []age.Identity, path string) (head segment, rows []keyserver.AuditEntry, err error) {
	database, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return head, nil, err
	}
	defer func() { err = errors.Join(err, database.Close()) }()
	ctx, cancel := context.WithCancel(ctx)
	b := &rebuilding{database: database, identities: identities}
	opened := m.open(ctx)
	defer func() { // close segments that were opened but not read
		cancel()
		for o := range opened {
			if got := <-o; got.from != nil {
				_ = got.from.Close()
			}
		}
	}()
	for _, k := range m.segments {
		one, ok := <-opened
		if !ok {
			return head, nil, ctx.Err()
		}
		got := <-one
		if err := b.add(k, got); err != nil {
			if got.err == nil && ctx.Err() == nil && k.number > 0 { // the content of the segment is wrong
				return head, nil, fmt.Errorf("%s: %w; %s", k.object, err, restoreRemedy(m.segments[:k.number]))
			}
			return head, nil, fmt.Errorf("%s: %w", k.object, err)
		}
	}
	return b.head, b.rows, nil
}

type openedSegment struct {
	from io.ReadCloser
	err  error
}

// open opens the segments in order, before the caller needs them.
func (m *RestorePoint) open(ctx context.Context) <-chan chan openedSegment {
	all := make(chan chan openedSegment, ahead)
	go func() {
		defer close(all)
		for _, k := range m.segments {
			one := make(chan openedSegment, 1)
			select {
			case all <- one:
			case <-ctx.Done():
				return
			}
			go func() {
				from, _, err := m.place.Get(ctx, k.object)
				if err == nil && from == nil {
					err = errors.New("it no longer exists")
				}
				one <- openedSegment{from, err}
			}()
		}
	}()
	return all
}

// rebuilding is a database file that is written from a base and its segments.
type rebuilding struct {
	database   *os.File
	identities []age.Identity

	head segment // description of the last segment
	said []byte
	rows []keyserver.AuditEntry
}

func (b *rebuilding) add(k keptSegment, opened openedSegment) (err error) {
	if opened.err != nil {
		return opened.err
	}
	defer func() { err = errors.Join(err, opened.from.Close()) }()
	r, err := unpack(opened.from, b.identities)
	if err != nil {
		return err
	}
	defer r.Close()
	var head segment
	if err := r.begin(segmentMember, &head); err != nil {
		return err
	}
	if err := b.follows(k, head); err != nil {
		return err
	}
	if head.Number == 0 {
		err = b.base(r)
	} else {
		err = b.segment(r, head)
	}
	if err != nil {
		return err
	}
	if err := r.End(); err != nil {
		return err
	}
	b.head, b.said = head, r.digest.Sum(nil)
	return nil
}

// follows compares the description of a segment with its name and with the previous segment.
func (b *rebuilding) follows(k keptSegment, head segment) error {
	switch {
	case head.Format != format:
		return damaged("its description cannot be read")
	case head.Generation != k.generation || head.Number != k.number || head.System != k.system || !head.Until.Equal(k.until):
		return damaged("it was written under another name")
	case !bytes.Equal(head.Previous, b.said):
		return damaged("it does not continue the segment before it, which was replaced")
	}
	return nil
}

func (b *rebuilding) base(r *Reader) error {
	return r.Part(databasePart, func(part io.Reader) (int64, error) {
		n, err := io.Copy(b.database, part)
		return n, err
	})
}

func (b *rebuilding) segment(r *Reader, head segment) (err error) {
	if err := r.Part(logPart, func(part io.Reader) (int64, error) {
		n := head.To.Frames - head.From.Frames
		if n == 0 {
			return 0, nil
		}
		h, err := wal.ParseHeader(head.Header)
		if err == nil && head.From != b.head.To && head.From != h.Start {
			err = wal.ErrDamaged
		}
		if err == nil {
			err = h.Apply(part, head.From, head.To, b.database)
		}
		if errors.Is(err, wal.ErrDamaged) {
			err = damaged("%v", err)
		}
		return n, err
	}); err != nil {
		return err
	}
	b.rows, err = r.journal()
	return err
}
