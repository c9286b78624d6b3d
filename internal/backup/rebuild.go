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
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore/wal"
)

// ahead is how many segments are opened before they are read: a bucket takes its time
// with each.
const ahead = 16

// Moment is one that a place has a replica of.
type Moment struct {
	Name  string // of the last segment that is needed
	Until time.Time

	place    Place
	segments []keptSegment // the base first
}

// FindMoment looks for the newest moment in a place that is not after at; for the newest
// that can be where at is zero and no name is given. name is of a generation, or empty. It answers nil where there
// is none at all.
func FindMoment(ctx context.Context, from, name string, at time.Time) (_ *Moment, err error) {
	if !isURL(from) {
		if info, err := os.Stat(from); err != nil || !info.IsDir() {
			return nil, err
		}
	}
	place, err := OpenPlace(ctx, from, false)
	if err != nil {
		return nil, err
	}
	m := &Moment{place: place}
	defer func() {
		if err != nil || len(m.segments) == 0 {
			err = errors.Join(err, place.Close())
		}
	}()
	if at.IsZero() && name == "" {
		at = time.Now().Add(clockAhead)
	}
	last, err := place.lastBefore(ctx, name, at)
	if err != nil || last == nil {
		return nil, err
	}
	if err := place.eachSegment(ctx, func(k keptSegment) error {
		if k.generation == last.generation && k.number <= last.number {
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
			return nil, fmt.Errorf("there are two segments %d of %s: remove the one that is not of it", k.number, k.generation)
		}
		return nil, missingSegment(m.segments[:i], int64(i), k.generation)
	}
	m.Name, m.Until = last.object, last.until
	return m, nil
}

// missingSegment says up to when there is something to restore all the same.
func missingSegment(before []keptSegment, number int64, generation string) error {
	text := "give --at with a time of before, or --backup with another replica or backup"
	if len(before) > 1 {
		text = fmt.Sprintf("with --at %s what is before it is restored", before[len(before)-1].until.Format(untilFlag))
	}
	return fmt.Errorf("segment %d of %s is missing: %s", number, generation, text)
}

// untilFlag is how a moment is given to --at.
const untilFlag = "2006-01-02T15:04:05.000Z07:00"

// lastBefore answers the last segment that is not after a time, nil where there is none.
func (p Place) lastBefore(ctx context.Context, name string, at time.Time) (*keptSegment, error) {
	var last *keptSegment
	var oldest time.Time
	systems, bases := map[keyserver.SystemID]string{}, map[string]bool{}
	// The base comes first by its name.
	err := p.eachSegment(ctx, func(k keptSegment) error {
		if name != "" && k.generation != name {
			return nil
		}
		if k.number == 0 {
			bases[k.generation] = true
			return nil
		}
		if !bases[k.generation] {
			return nil
		}
		systems[k.system] = k.generation
		if oldest.IsZero() || k.until.Before(oldest) {
			oldest = k.until
		}
		if (at.IsZero() || !k.until.After(at)) && (last == nil || !k.until.Before(last.until)) {
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
		return nil, fmt.Errorf("there are replicas of several key servers; say which one: --backup NAME, for instance %s", strings.Join(each, ", "))
	case last == nil && !oldest.IsZero():
		return nil, fmt.Errorf("there is no replica of %s or before: the oldest is of %s", at.Format(untilFlag), oldest.Format(untilFlag))
	}
	return last, nil
}

// IsGeneration reports whether a name is one of a generation of a replica.
func IsGeneration(name string) bool { return generationForm.MatchString(name) }

// Close gives up what FindMoment took.
func (m *Moment) Close() error { return m.place.Close() }

// Restore makes a database of a replica, as it was at the moment. It takes room for
// another one in the directory of temporary files.
func (m *Moment) Restore(ctx context.Context, identity string, o Options) (done Restored, err error) {
	identities, err := parseIdentities(strings.NewReader(identity))
	if err != nil {
		return done, err
	}
	dir, err := os.MkdirTemp("", "keyserver-restore-") // 0700
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	head, rows, err := m.rebuild(ctx, identities, filepath.Join(dir, sqlstore.DatabaseFile))
	if err != nil {
		return done, err
	}
	store, err := sqlstore.OpenCopy(ctx, dir, rows)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return m.reload(ctx, store, head, o)
}

// reload makes a backup of the database that was rebuilt, and restores that.
func (m *Moment) reload(ctx context.Context, store *sqlstore.Store, head segment, o Options) (done Restored, err error) {
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
	written := make(chan error, 1)
	go func() {
		err := maker.Write(ctx, between.Recipient().String(), w)
		written <- errors.Join(err, w.CloseWithError(err))
	}()
	defer func() {
		_ = r.Close() // ends the writing, whatever became of it
		if failed := <-written; failed != nil && !errors.Is(failed, io.ErrClosedPipe) {
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

// rebuild writes the database as it was, and answers the rows of the audit trail that may
// not be in it.
func (m *Moment) rebuild(ctx context.Context, identities []age.Identity, path string) (head segment, rows []keyserver.AuditEntry, err error) {
	database, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return head, nil, err
	}
	defer func() { err = errors.Join(err, database.Close()) }()
	ctx, cancel := context.WithCancel(ctx)
	b := &rebuilding{database: database, identities: identities}
	opened := m.open(ctx)
	defer func() { // those that were opened for nothing
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
		if err := b.add(k, <-one); err != nil {
			if errors.Is(err, ErrDamaged) && k.number > 1 {
				before := m.segments[k.number-1]
				return head, nil, fmt.Errorf("%s: %w; with --at %s what is before it is restored", k.object, err, before.until.Format(untilFlag))
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

// open opens segments ahead of who reads them.
func (m *Moment) open(ctx context.Context) <-chan chan openedSegment {
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
					err = errors.New("it is not there any more")
				}
				one <- openedSegment{from, err}
			}()
		}
	}()
	return all
}

// rebuilding is a database that is written from its base and what follows.
type rebuilding struct {
	database   *os.File
	identities []age.Identity

	head segment // of the last one
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
	b.head, b.said = head, r.said.Sum(nil)
	return nil
}

// follows holds what a segment says of itself against its name, and the one before.
func (b *rebuilding) follows(k keptSegment, head segment) error {
	switch {
	case head.Format != format:
		return damaged("what it is of cannot be read")
	case head.Generation != k.generation || head.Number != k.number || head.System != k.system || !head.Until.Equal(k.until):
		return damaged("it was written under another name")
	case !bytes.Equal(head.Previous, b.said):
		return damaged("it does not follow the one before it, which is another one than it was")
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
