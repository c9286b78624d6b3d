package link

import (
	"context"
	"maps"
	"reflect"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Answers describes single answers that a service gives about objects of
// which there are too many to list, or that have no list.
type Answers[V any] struct {
	// Feed is the kind of changes that make an answer void. Where it is empty,
	// the change feed says nothing of them, and the service is asked again.
	Feed string
	Name string
	Read func(ctx context.Context, c *Connection, key string) (V, error)
	// ID returns the id of the object that an answer is about.
	ID func(V) string
}

// Of returns the connection's memo.
func (a *Answers[V]) Of(c *Connection) *Memo[V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have, ok := c.memos[a.Name].(*Memo[V]); ok {
		return have
	}
	m := &Memo[V]{
		clock: c.clock, feed: a.Feed, id: a.ID, by: map[string]remembered[V]{},
		read: func(ctx context.Context, key string) (V, error) { return a.Read(ctx, c, key) },
	}
	c.memos[a.Name] = m
	return m
}

// Memo remembers answers, each until the change feed reports on its object.
type Memo[V any] struct {
	clock clock.Clock
	feed  string
	read  func(context.Context, string) (V, error)
	id    func(V) string

	mu    sync.Mutex
	by    map[string]remembered[V]
	stale int // counts changes: a reading during which one happened is not kept
}

type remembered[V any] struct {
	value  V
	readAt time.Time
	void   bool // kept for comparison, and for as long as there is no other
	own    bool // what a write of the manager's own has made
}

// Get returns the answer for a key, read no earlier than notBefore. Failures
// are not remembered.
func (m *Memo[V]) Get(ctx context.Context, notBefore time.Time, key string) (V, error) {
	m.mu.Lock()
	have, ok := m.by[key]
	stale, begun := m.stale, m.clock.Now()
	m.mu.Unlock()
	if ok && !have.void && !have.readAt.Before(notBefore) {
		return have.value, nil
	}
	value, err := m.read(ctx, key)
	if err == nil {
		m.keep(key, remembered[V]{value: value, readAt: begun}, stale)
	}
	return value, err
}

// Put records what a verified write has read back. made says that the write has
// made it, which the change feed then reports as no news.
func (m *Memo[V]) Put(key string, value V, made bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stale++ // a reading under way may not have it
	m.by[key] = remembered[V]{value: value, readAt: m.clock.Now(), own: made}
}

// keep remembers a reading, unless a change has come since.
func (m *Memo[V]) keep(key string, is remembered[V], stale int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stale == stale {
		m.by[key] = is
	}
}

// recheck asks again what the change feed does not tell, and reports whether
// any answer is another one.
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
		m.keep(key, remembered[V]{value: value, readAt: begun}, stale)
		changed = changed || !reflect.DeepEqual(value, was.value)
	}
	return changed, nil
}

// Last returns the answer for a key however old it is.
func (m *Memo[V]) Last(key string) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	have, ok := m.by[key]
	return have.value, ok
}

// Changed forgets the answers about one object. It answers false where the change
// is that the manager itself has made the object, which is known here already.
func (m *Memo[V]) Changed(kind, id, action string) (news bool) {
	if kind != m.feed {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stale++
	news = true
	for key, have := range m.by {
		switch {
		case m.id(have.value) != id:
		case have.own && action == "created":
			news = false
		default:
			delete(m.by, key)
		}
	}
	return news
}

// invalidate makes the next reader ask. What the change feed does not tell is
// kept: somebody has to find out that it is another answer.
func (m *Memo[V]) invalidate() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stale++
	if m.feed != "" {
		clear(m.by)
	}
	for key, have := range m.by {
		have.void = true
		m.by[key] = have
	}
}
