package connection

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// List describes one list of a key server: how to read it, and by which keys its rows are found. An adapter declares
// the lists that it needs. Each connection then has one Listing of each list.
type List[Row any] struct {
	// Name identifies the list, and is the kind that the change feed uses.
	Name string
	Read func(context.Context, *Connection) ([]Row, error)
	// Keys returns every key of a row, its id first. If two rows have the same key, the key finds the row that is first in
	// the list.
	Keys func(Row) []string
}

// Of returns the connection's listing.
func (l *List[Row]) Of(c *Connection) *Listing[Row] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have, ok := c.listings[l.Name].(*Listing[Row]); ok {
		return have
	}
	s := &Listing[Row]{
		clock: c.clock,
		read:  func(ctx context.Context) ([]Row, error) { return l.Read(ctx, c) },
		keys:  l.Keys,
	}
	c.listings[l.Name] = s
	return s
}

// Limits on how often a list is read. They do not depend on the number of objects.
const (
	readPause  = 100 * time.Millisecond // between two reads
	errorPause = 2 * time.Second        // during this time, the error of a failed read is returned without another read
)

// Listing is the last reading of a list, shared by all objects of a connection. Verified writes of the connection (Put,
// Drop) and the change feed (Changed) update it. If they cannot apply a change, the next reader reads the list again.
type Listing[Row any] struct {
	clock clock.Clock
	read  func(context.Context) ([]Row, error)
	keys  func(Row) []string

	mu      sync.Mutex
	rows    map[string]Row    // id by any key of a row
	ids     map[string]string // id by any key
	stale   int               // number of invalidations
	current bool
	readAt  time.Time
	tried   time.Time
	err     error
	// flight is closed when the read in progress ends. Writes of the manager that end during the read are also added to
	// journal, because the read may not include them.
	flight  chan struct{}
	journal []func()
	// reportedAt is the time of the feed's last report about a row. reset is the time of the last invalidation of all
	// rows.
	reportedAt map[string]time.Time
	reset      time.Time
	// own has the manager's last write to each row, until the feed reports the write.
	own map[string]string
}

const (
	created = "created"
	deleted = "deleted"
)

// disputed is the time for which a report of the feed makes the result of a write doubtful: the reported change may be
// later or earlier than the write. It is longer than any write takes.
const disputed = 5 * time.Minute

// maxReported limits the number of entries in reportedAt and in own. At the limit, all rows count as reported, and
// recorded writes of the manager count as writes of other clients.
const maxReported = 10_000

var errListMoved = errors.New("the list changed faster than it could be read")

// Find returns the first row with one of the keys, from a reading that is not older than notBefore. If there is such a
// reading already, Find sends no request.
func (l *Listing[Row]) Find(ctx context.Context, notBefore time.Time, keys ...string) (row Row, ok bool, err error) {
	if err := l.Refresh(ctx, notBefore); err != nil {
		return row, false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range keys {
		if id, found := l.ids[k]; found && k != "" {
			return l.rows[id], true, nil
		}
	}
	return row, false, nil
}

// Each visits every row of the last reading, in no order.
func (l *Listing[Row]) Each(visit func(Row)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.rows {
		visit(r)
	}
}

// Refresh reads the list if the last reading is invalid or older than notBefore. Concurrent callers share one read.
func (l *Listing[Row]) Refresh(ctx context.Context, notBefore time.Time) error {
	const attempts = 5
	for range attempts {
		l.mu.Lock()
		if l.current && !l.readAt.Before(notBefore) {
			l.mu.Unlock()
			return nil
		}
		if l.err != nil && l.clock.Since(l.tried) < errorPause && l.tried.After(notBefore) {
			defer l.mu.Unlock()
			return l.err
		}
		flight := l.flight
		if flight == nil {
			flight = make(chan struct{})
			l.flight = flight
			pause := readPause - l.clock.Since(l.tried)
			l.mu.Unlock()
			l.startRead(ctx, pause, flight)
		} else {
			l.mu.Unlock()
		}
		select {
		case <-flight:
		case <-ctx.Done():
			return ctx.Err()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	if l.rows != nil && !l.readAt.Before(notBefore) {
		return nil // the list was just read; the feed causes another pass
	}
	return &Problem{Reason: progressing, Message: errListMoved.Error(), RequeueAfter: time.Second, Transient: true}
}

func (l *Listing[Row]) startRead(ctx context.Context, pause time.Duration, flight chan struct{}) {
	if pause > 0 {
		select {
		case <-l.clock.After(pause):
		case <-ctx.Done():
		}
	}
	l.mu.Lock()
	begun, stale := l.clock.Now(), l.stale
	l.journal = nil
	l.mu.Unlock()

	rows, err := l.read(ctx)

	l.mu.Lock()
	defer l.mu.Unlock()
	l.flight, l.tried = nil, l.clock.Now()
	if ctx.Err() == nil { // an error of a cancelled reader is not returned to other callers
		l.err = err
	}
	if err == nil {
		l.rows, l.ids = make(map[string]Row, len(rows)), make(map[string]string, len(rows))
		for _, r := range rows {
			l.add(r)
		}
		for _, again := range l.journal {
			again()
		}
		l.readAt, l.current = begun, l.stale == stale
	}
	l.journal = nil
	close(flight)
}

// Put records a row that a verified write has read back. If the feed has reported the row in the meantime, the row of
// the write may be outdated. The list is then read again.
func (l *Listing[Row]) Put(row Row) {
	id := l.keys(row)[0]
	l.write(id, created, func() {
		l.remove(id)
		l.add(row)
	})
}

// Drop records that a row is deleted, as a verified write has read back.
func (l *Listing[Row]) Drop(id string) { l.write(id, deleted, func() { l.remove(id) }) }

func (l *Listing[Row]) write(id, action string, apply func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.own, id)
	told, since := l.reportedAt[id], l.clock.Now().Add(-disputed)
	switch _, there := l.rows[id]; {
	case told.After(since) || l.reset.After(since): // this report may be about this write
		l.current = false
		l.stale++
	case there == (action == deleted):
		if l.own == nil || len(l.own) >= maxReported {
			l.own = map[string]string{}
		}
		l.own[id] = action
	}
	if l.rows != nil {
		apply()
	}
	if l.flight != nil {
		l.journal = append(l.journal, apply)
	}
}

// Changed records a change that the feed reports. It returns false if the manager made the change itself. It returns
// true even if a reading already included the change: that reading may have been for another object, so the object of
// the changed row must still be notified.
func (l *Listing[Row]) Changed(id, action string) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, have := l.rows[id]
	noted := action == created && have || action == deleted && !have
	own := noted && l.own[id] == action
	delete(l.own, id)
	if !own {
		l.recordReport(id)
	}
	switch {
	case !l.current:
		if !noted {
			l.stale++ // the read in progress may not include the change
		}
		return true
	case noted:
		return !own
	case action == deleted:
		l.remove(id)
		if l.flight != nil {
			l.stale++
		}
		return true
	}
	l.current = false
	l.stale++
	return true
}

// invalidate discards the last reading: the next Find reads the list again.
func (l *Listing[Row]) invalidate() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current, l.err = false, nil
	l.stale++
	l.reset = l.clock.Now()
	l.own = nil
}

func (l *Listing[Row]) recordReport(id string) {
	if l.reportedAt == nil || len(l.reportedAt) >= maxReported {
		if l.reportedAt != nil {
			l.reset = l.clock.Now()
		}
		l.reportedAt = map[string]time.Time{}
	}
	l.reportedAt[id] = l.clock.Now()
}

func (l *Listing[Row]) add(row Row) {
	keys := l.keys(row)
	l.rows[keys[0]] = row
	for _, k := range keys {
		if _, taken := l.ids[k]; !taken {
			l.ids[k] = keys[0]
		}
	}
}

func (l *Listing[Row]) remove(id string) {
	row, ok := l.rows[id]
	if !ok {
		return
	}
	delete(l.rows, id)
	for _, k := range l.keys(row) {
		if l.ids[k] == id {
			delete(l.ids, k)
		}
	}
}
