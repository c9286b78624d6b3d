package connection

import (
	"context"
	"maps"
	"reflect"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Lookup describes single responses of a key server about objects that are too many to list, or that have no list.
type Lookup[V any] struct {
	// Feed is the kind of changes that invalidate a response. If Feed is empty, the change feed does not report such
	// changes, and recheck reads the response again at intervals.
	Feed string
	Name string
	Read func(ctx context.Context, c *Connection, key string) (V, error)
	// ID returns the id of the object that a response describes.
	ID func(V) string
	// Parts returns the ids of further objects that the change feed reports and that are parts of the object. A change of
	// a part is a change of the object. Parts is nil if there are no parts.
	Parts func(V) []string
}

// Of returns the Memo of the connection.
func (a *Lookup[V]) Of(c *Connection) *Memo[V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have, ok := c.memos[a.Name].(*Memo[V]); ok {
		return have
	}
	m := &Memo[V]{
		clock: c.clock, feed: a.Feed, id: a.ID, parts: a.Parts,
		by: map[string]memoEntry[V]{}, about: map[string]map[string]bool{}, objectByPart: map[string]string{},
		read: func(ctx context.Context, key string) (V, error) { return a.Read(ctx, c, key) },
	}
	c.memos[a.Name] = m
	return m
}

// Memo caches responses. A response is discarded when the change feed reports a change of its object.
type Memo[V any] struct {
	clock clock.Clock
	feed  string
	read  func(context.Context, string) (V, error)
	id    func(V) string
	parts func(V) []string // nil if there are no parts

	mu    sync.Mutex
	by    map[string]memoEntry[V]
	about map[string]map[string]bool // by object id: the keys in by of the responses about the object
	stale int                        // number of changes; a reading is discarded if a change happened during the reading
	// objectByPart maps the id of a part to the id of its object. An entry stays after the response is discarded, because a later
	// change of the part must still enqueue the objects that wait for the part.
	objectByPart map[string]string
}

type memoEntry[V any] struct {
	value    V
	readAt   time.Time
	outdated bool // invalid, but kept so that recheck can compare it with the next response
	own      bool // created by a write of the manager
}

// Get returns the response for a key, read no earlier than notBefore. Failures are not remembered.
func (m *Memo[V]) Get(ctx context.Context, notBefore time.Time, key string) (V, error) {
	m.mu.Lock()
	have, ok := m.by[key]
	stale, begun := m.stale, m.clock.Now()
	m.mu.Unlock()
	if ok && !have.outdated && !have.readAt.Before(notBefore) {
		return have.value, nil
	}
	value, err := m.read(ctx, key)
	if err == nil {
		m.keep(key, memoEntry[V]{value: value, readAt: begun}, stale)
		m.recordParts(value)
	}
	return value, err
}

// recordParts records the parts in a response, even if the response is not cached.
func (m *Memo[V]) recordParts(value V) {
	if m.parts == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, part := range m.parts(value) {
		m.objectByPart[part] = m.id(value)
	}
}

// Put records the object that a verified write has read back. made means that the write created the object. The next
// report of the creation is then no news for Changed.
func (m *Memo[V]) Put(key string, value V, made bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stale++ // a reading in progress may not include the object
	m.set(key, memoEntry[V]{value: value, readAt: m.clock.Now(), own: made})
}

// set adds a response. All responses must be added by set, because it maintains the index about, by which a change
// finds its responses.
func (m *Memo[V]) set(key string, is memoEntry[V]) {
	m.forget(key)
	id := m.id(is.value)
	if m.about[id] == nil {
		m.about[id] = map[string]bool{}
	}
	m.about[id][key], m.by[key] = true, is
}

func (m *Memo[V]) forget(key string) {
	was, ok := m.by[key]
	if !ok {
		return
	}
	id := m.id(was.value)
	delete(m.by, key)
	delete(m.about[id], key)
	if len(m.about[id]) == 0 {
		delete(m.about, id)
	}
}

// keep caches a reading, unless a change was reported during the reading.
func (m *Memo[V]) keep(key string, is memoEntry[V], stale int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stale == stale {
		m.set(key, is)
	}
}

// recheck reads again the responses whose changes the feed does not report. changed means that at least one response is
// different.
func (m *Memo[V]) recheck(ctx context.Context) (changed bool, err error) {
	if m.feed != "" {
		return false, nil
	}
	m.mu.Lock()
	known, stale := maps.Clone(m.by), m.stale
	m.mu.Unlock()
	for key, was := range known {
		begun := m.clock.Now()
		value, err := m.read(ctx, key)
		if err != nil {
			return changed, err
		}
		m.keep(key, memoEntry[V]{value: value, readAt: begun}, stale)
		changed = changed || !reflect.DeepEqual(value, was.value)
	}
	return changed, nil
}

// Confirm sets the time of the cached response for a key to readAt, if that is later and same accepts the response.
// Another response of that time shows that the object is unchanged.
func (m *Memo[V]) Confirm(key string, readAt time.Time, same func(V) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if have, ok := m.by[key]; ok && !have.outdated && have.readAt.Before(readAt) && same(have.value) {
		have.readAt = readAt
		m.by[key] = have
	}
}

// Last returns the response for a key regardless of its age.
func (m *Memo[V]) Last(key string) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	have, ok := m.by[key]
	return have.value, ok
}

// Changed discards the responses about one object. If the object is a part of another object, Changed also discards the
// responses about that object and returns its id as whole. news is false if the change is a creation that the manager
// made and has recorded.
func (m *Memo[V]) Changed(kind, id, action string) (whole string, news bool) {
	if kind != m.feed {
		return "", true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stale++
	whole, news = m.objectByPart[id], true
	for key := range m.about[id] {
		if m.by[key].own && action == created {
			news = false
			continue
		}
		m.forget(key)
	}
	if whole != "" && whole != id {
		for key := range m.about[whole] {
			m.forget(key)
		}
	}
	return whole, news
}

// anyChanged discards all responses if kind is the Memo's feed.
func (m *Memo[V]) anyChanged(kind string) {
	if kind == m.feed {
		m.invalidate()
	}
}

// invalidate discards all responses. Responses without a feed are only marked as invalid, so that recheck can find out
// whether they have changed.
func (m *Memo[V]) invalidate() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stale++
	if m.feed != "" {
		clear(m.by)
		clear(m.about)
	}
	for key, have := range m.by {
		have.outdated = true
		m.by[key] = have
	}
}
