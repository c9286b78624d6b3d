package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/wal"
)

// FoldAt is the number of pages at which the log is folded into the database.
const FoldAt = 4096

// maxRest bounds the bytes that a fold reads while it blocks writes.
const maxRest = 4 << 20

// ErrLogMoved means that a part of the log may be gone before it was read.
var ErrLogMoved = errors.New("the write-ahead log of the database was checkpointed before it was read")

// errBusy means that the caller has to try again.
var errBusy = errors.New("audit rows are being written")

// Log is the write-ahead log of an embedded database whose log is copied elsewhere. The log is read while other
// connections write, and only Log folds it into the database (Database.Shipped). Its methods must be called by one
// goroutine.
type Log struct {
	on      *sqldb.DB
	dialect *Database
	db      sqldb.Pool // folds
	durable func() ([]keyserver.AuditEntry, bool)
	// folded is the position up to which the file of the database has everything, so that
	// the log continues after it or restarts. nil: the log does not restart.
	folded    *wal.Position
	unshipped int64 // the value of Database.unshipped when the base was begun
}

// Base is the file of the database, which does not change before the log is folded, and a
// position in the log. The file and the log after that position make the database.
type Base struct {
	File io.Reader
	Size int64
	At   wal.Position
}

// Committed has the commits after a position in the log.
type Committed struct {
	Header   wal.Header
	From, To wal.Position // of Header, both zero if there is no log yet
	Frames   io.ReadSeeker
	// Rows are the durable rows of the audit log that may be in no table yet.
	Rows []keyserver.AuditEntry
	// Until is the time of the read: everything that was acknowledged before is included.
	Until time.Time

	file *os.File
}

// Close closes the file that Frames reads from.
func (c Committed) Close() error {
	if c.file == nil {
		return nil
	}
	return c.file.Close()
}

// NewLog returns the log of a database that was opened to be shipped. It has to be closed before the database is
// closed. durable returns the rows of the audit log that are durable and may be in no table yet, or false while they
// are being written.
func NewLog(db *sqldb.DB, durable func() ([]keyserver.AuditEntry, bool)) (*Log, error) {
	d, ok := db.Dialect().(*Database)
	if !ok || !d.Shipped {
		return nil, errors.New("the database was not opened for replication")
	}
	return &Log{on: db, dialect: d, db: d.Pool("rw", 1), durable: durable}, nil
}

// Close closes the connection of the Log.
func (l *Log) Close() error { return l.db.Close() }

// open opens the log. It returns nil if there is no complete log.
func (l *Log) open() (*os.File, wal.Header, error) {
	f, err := os.Open(l.dialect.Path() + "-wal")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, wal.Header{}, nil
	}
	if err != nil {
		return nil, wal.Header{}, err
	}
	h, found, err := wal.ReadHeader(f)
	if err != nil || !found {
		return nil, wal.Header{}, errors.Join(err, f.Close())
	}
	return f, h, nil
}

// Base begins a base. Until the caller has read the base, it must not call Fold or Discard. After reading, it has to
// check Intact.
func (l *Log) Base(ctx context.Context) (b Base, err error) {
	if err := l.on.Lock(ctx); err != nil {
		return b, err
	}
	defer l.on.Unlock()
	if err := l.dialect.InPlace(); err != nil {
		return b, err
	}
	if !l.Intact() {
		l.folded = nil
	}
	l.unshipped = l.dialect.unshipped.Load()
	info, err := l.dialect.file.Stat()
	if err != nil {
		return b, err
	}
	b.Size = info.Size()
	b.File = io.NewSectionReader(l.dialect.file, 0, b.Size)
	f, h, err := l.open()
	if err != nil {
		return b, err
	}
	if f == nil {
		if l.folded == nil {
			l.folded = &wal.Position{}
		}
		b.At = *l.folded
		return b, nil
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	// If the log does not continue the file, all of the log is read. Pages that the file already has are then written
	// again.
	b.At = h.Start
	if l.folded != nil {
		_, there, err := h.Scan(f, *l.folded)
		if err != nil {
			return b, err
		}
		if there {
			b.At = *l.folded
		}
	}
	return b, nil
}

// Intact reports whether only Fold has folded the log since the base was begun.
func (l *Log) Intact() bool { return l.dialect.unshipped.Load() == l.unshipped }

// tries bounds how often Read waits for a moment in which the audit log is not being
// written.
const tries = 100

// Read returns the commits after a position. The caller has to close the result.
func (l *Log) Read(ctx context.Context, after wal.Position) (Committed, error) {
	from := after
	for range tries {
		// Most of the log is read while other goroutines write.
		c, err := l.scan(from)
		if err != nil {
			return Committed{}, err
		}
		near := c.To
		if err := c.Close(); err != nil {
			return Committed{}, err
		}
		c, err = l.settled(ctx, near)
		if errors.Is(err, errBusy) {
			if err := pause(ctx); err != nil {
				return Committed{}, err
			}
			continue
		}
		if err != nil {
			return Committed{}, err
		}
		if c.Header.Start.Salts == after.Salts {
			c.From = after
		} else if c.Header.Raw != nil {
			c.From = c.Header.Start
		}
		if c.file != nil {
			c.Frames = c.Header.Frames(c.file, c.From, c.To)
		}
		return c, nil
	}
	return Committed{}, sqldb.Unavailable(errBusy)
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(10 * time.Millisecond):
		return nil
	}
}

// settled scans the log while no other goroutine writes, with the audit rows of the same
// moment.
func (l *Log) settled(ctx context.Context, after wal.Position) (c Committed, err error) {
	if err := l.on.Lock(ctx); err != nil {
		return c, err
	}
	defer l.on.Unlock()
	return l.scanLocked(after)
}

// scanLocked is scan with the audit rows of the same moment. The caller holds the lock of the writer, without which no
// row is written.
func (l *Log) scanLocked(after wal.Position) (c Committed, err error) {
	if !l.Intact() {
		return c, ErrLogMoved
	}
	until := l.on.Options().Clock()
	rows, known := l.durable()
	if !known {
		return c, errBusy
	}
	if c, err = l.scan(after); err != nil {
		return c, err
	}
	c.Until, c.Rows = until, rows
	return c, nil
}

// scan finds the end of the last transaction after a position.
func (l *Log) scan(after wal.Position) (c Committed, err error) {
	f, h, err := l.open()
	if err != nil {
		return c, err
	}
	continues := l.folded != nil && *l.folded == after
	if f == nil {
		if !continues {
			return c, ErrLogMoved
		}
		return Committed{From: after, To: after}, nil
	}
	if continues && h.Start.Salts != after.Salts {
		after = h.Start
	}
	end, there, err := h.Scan(f, after)
	if err == nil && !there {
		err = ErrLogMoved
	}
	if err != nil {
		return c, errors.Join(err, f.Close())
	}
	return Committed{Header: h, From: after, To: end, file: f}, nil
}

// Fold folds the log into the database. It returns the commits after a position, which the caller can then no longer
// read. It does nothing and returns false if these commits have more than maxRest bytes, if there is no log, or while
// the audit log is being written. An open read of an older state keeps Fold from folding all of the log.
func (l *Log) Fold(ctx context.Context, after wal.Position) (c Committed, done bool, err error) {
	if err := l.on.Lock(ctx); err != nil {
		return c, false, err
	}
	defer l.on.Unlock()
	c, err = l.scanLocked(after)
	if errors.Is(err, errBusy) {
		return c, false, nil
	}
	if err != nil {
		return c, false, err
	}
	size := (c.To.Frames - c.From.Frames) * c.Header.FrameSize()
	if c.file == nil || size > maxRest {
		return Committed{}, false, c.Close()
	}
	rest, err := io.ReadAll(c.Header.Frames(c.file, c.From, c.To))
	if err := errors.Join(err, c.Close()); err != nil {
		return c, false, err
	}
	if int64(len(rest)) != size {
		return c, false, ErrLogMoved
	}
	c.Frames, c.file = bytes.NewReader(rest), nil
	all, err := l.fold(ctx, "RESTART")
	if l.folded = nil; all {
		l.folded = &c.To
	}
	return c, true, err
}

// Discard folds the log into the database even if parts of it were not read. The reader then
// needs a new base.
func (l *Log) Discard(ctx context.Context) error {
	if err := l.on.Lock(ctx); err != nil {
		return err
	}
	defer l.on.Unlock()
	l.dialect.unshipped.Add(1)
	l.folded = nil
	_, err := l.fold(ctx, "TRUNCATE")
	return err
}

// fold needs the lock of the writer. It reports whether all of the log is in the database.
func (l *Log) fold(ctx context.Context, how string) (bool, error) {
	if err := l.dialect.InPlace(); err != nil {
		return false, err
	}
	// A long read is not waited for: the log then restarts when that read has ended.
	if _, err := l.db.ExecContext(ctx, `PRAGMA busy_timeout = 100`); err != nil {
		return false, sqldb.Translate(l.dialect, err)
	}
	var busy, logged, folded int
	if err := l.db.QueryRowContext(ctx, `PRAGMA wal_checkpoint(`+how+`)`).Scan(&busy, &logged, &folded); err != nil {
		return false, fmt.Errorf("checkpoint the write-ahead log: %w", sqldb.Translate(l.dialect, err))
	}
	return logged == folded, nil
}

// Size returns the size of the log in bytes. When the log restarts it does not shrink,
// except after Discard.
func (l *Log) Size() (int64, error) {
	info, err := os.Stat(l.dialect.Path() + "-wal")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
