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

// FoldAt is the number of pages at which Fold copies the log into the database file (a checkpoint of SQLite).
const FoldAt = 4096

// maxRest is the maximum number of bytes that Fold reads while it blocks writes.
const maxRest = 4 << 20

// ErrLogMoved means that a part of the log may have been removed or overwritten before it was read.
var ErrLogMoved = errors.New("the write-ahead log of the database was checkpointed before it was read")

// errBusy means that audit rows are being written, and the caller has to try again.
var errBusy = errors.New("audit rows are being written")

// Log is the write-ahead log of an embedded database that is replicated (Database.Shipped). Log reads the log while
// other connections write. Only Log copies the log into the database file. Its methods must be called by one goroutine.
type Log struct {
	on      *sqldb.DB
	dialect *Database
	db      sqldb.Pool // connection of fold
	durable func() ([]keyserver.AuditEntry, bool)
	// folded is the position after the last complete copy: the database file has all commits before that position. nil: it
	// is unknown which part of the log is in the file.
	folded    *wal.Position
	unshipped int64 // the value of Database.unshipped at the last call of Base
}

// Base is the file of the database and a position in the log. The file together with the log after that position is the
// complete database. The file does not change until Fold copies the log into it.
type Base struct {
	File io.Reader
	Size int64
	At   wal.Position
}

// Committed has the commits after a position in the log.
type Committed struct {
	Header   wal.Header
	From, To wal.Position // positions in the log to which Header belongs, if there is a log
	Frames   io.ReadSeeker
	// Rows are the audit rows that are durable in the journal and may be in no table yet.
	Rows []keyserver.AuditEntry
	// Until is the time of the read: all writes that were acknowledged before are included.
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

// NewLog returns the log of a database that was opened with Shipped. The caller has to close the log before the
// database. durable returns the audit rows that are durable in the journal and may be in no table yet, or false while
// they are being written.
func NewLog(db *sqldb.DB, durable func() ([]keyserver.AuditEntry, bool)) (*Log, error) {
	d, ok := db.Dialect().(*Database)
	if !ok || !d.Shipped {
		return nil, errors.New("the database was not opened for replication")
	}
	return &Log{on: db, dialect: d, db: d.Pool("rw", 1), durable: durable}, nil
}

// Close closes the connection of the Log.
func (l *Log) Close() error { return l.db.Close() }

// open opens the file of the log. It returns nil if there is no file, or if its header is incomplete.
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

// Base returns a base for the caller to read. The caller must not call Fold or Discard before it has read the base.
// After the read, the caller has to check Intact.
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
	// If it is unknown which part of the log is in the file, the position is the start of the log. A restore then
	// writes some pages of the file again.
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

// Intact reports whether only Fold has copied the log into the database file since the last call of Base.
func (l *Log) Intact() bool { return l.dialect.unshipped.Load() == l.unshipped }

// tries is how often Read tries to read the log and the audit rows while no audit row is
// being written.
const tries = 100

// Read returns the commits after a position. The caller has to close the result.
func (l *Log) Read(ctx context.Context, after wal.Position) (Committed, error) {
	from := after
	for range tries {
		// Find most of the new commits while other goroutines can still write.
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

// settled scans the log while no other goroutine writes. The result includes the audit rows
// of the same time.
func (l *Log) settled(ctx context.Context, after wal.Position) (c Committed, err error) {
	if err := l.on.Lock(ctx); err != nil {
		return c, err
	}
	defer l.on.Unlock()
	return l.scanLocked(after)
}

// scanLocked is scan, and also returns the audit rows of the same time. The caller holds the lock for writes (DB.Lock),
// so that no row is written in the meantime.
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

// Fold copies the log into the database file. It returns the commits after a position, because the caller can no longer
// read them from the log. It does nothing and returns false if these commits have more than maxRest bytes, if there is
// no log, or while audit rows are being written. If another connection still reads an older state, Fold copies only a
// part of the log.
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

// Discard copies the log into the database file even if parts of the log were not read. The
// replica then needs a new base.
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

// fold runs a checkpoint of SQLite. The caller holds the lock for writes. fold reports whether all of the log is in the
// database file.
func (l *Log) fold(ctx context.Context, how string) (bool, error) {
	if err := l.dialect.InPlace(); err != nil {
		return false, err
	}
	// Do not wait for a long read of another connection. The log can restart after that read.
	if _, err := l.db.ExecContext(ctx, `PRAGMA busy_timeout = 100`); err != nil {
		return false, sqldb.Translate(l.dialect, err)
	}
	var busy, logged, folded int
	if err := l.db.QueryRowContext(ctx, `PRAGMA wal_checkpoint(`+how+`)`).Scan(&busy, &logged, &folded); err != nil {
		return false, fmt.Errorf("checkpoint the write-ahead log: %w", sqldb.Translate(l.dialect, err))
	}
	return logged == folded, nil
}

// Size returns the size of the file of the log in bytes. The file does not shrink when the log restarts, except after
// Discard.
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
