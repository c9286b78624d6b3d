package connection

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
	// Parts returns the ids of further objects that an answer is about, as which
	// parts of its object are known to the change feed: a change of one is a change
	// of the object. Nil where there are none.
	Parts func(V) []string
}

// Of returns the connection's memo.
func (a *Answers[V]) Of(c *Connection) *Memo[V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have, ok := c.memos[a.Name].(*Memo[V]); ok {
		return have
	}
	m := &Memo[V]{
		clock: c.clock, feed: a.Feed, id: a.ID, parts: a.Parts,
		by: map[string]remembered[V]{}, about: map[string]map[string]bool{}, whole: map[string]string{},
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
	parts func(V) []string // nil for none

	mu    sync.Mutex
	by    map[string]remembered[V]
	about map[string]map[string]bool // the keys of by, by the id of what their answers are about
	stale int                        // counts changes: a reading during which one happened is not kept
	// whole are the ids of objects by those of their parts. They outlive the answers
	// that told them: whoever waits for one has to be woken between two answers, too.
	whole map[string]string
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
		m.learn(value)
	}
	return value, err
}

// learn notes the parts that an answer tells, whether it is kept or not.
func (m *Memo[V]) learn(value V) {
	if m.parts == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, part := range m.parts(value) {
		m.whole[part] = m.id(value)
	}
}

// Put records what a verified write has read back. made says that the write has
// made it, which the change feed then reports as no news.
func (m *Memo[V]) Put(key string, value V, made bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stale++ // a reading under way may not have it
	m.set(key, remembered[V]{value: value, readAt: m.clock.Now(), own: made})
}

// set has to be told of each answer. Nobody looks through all of them at a change.
func (m *Memo[V]) set(key string, is remembered[V]) {
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

// keep remembers a reading, unless a change has come since.
func (m *Memo[V]) keep(key string, is remembered[V], stale int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stale == stale {
		m.set(key, is)
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

// Confirm counts the answer for a key as read no earlier than a time, where another
// answer of that time says that it would still be the same.
func (m *Memo[V]) Confirm(key string, readAt time.Time, same func(V) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if have, ok := m.by[key]; ok && !have.void && have.readAt.Before(readAt) && same(have.value) {
		have.readAt = readAt
		m.by[key] = have
	}
}

// Last returns the answer for a key however old it is.
func (m *Memo[V]) Last(key string) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	have, ok := m.by[key]
	return have.value, ok
}

// Changed forgets the answers about one object. Where it is a part of another one,
// it forgets those about that, too, and returns its id. It answers false where the
// change is that the manager itself has made the object, which is known here already.
func (m *Memo[V]) Changed(kind, id, action string) (whole string, news bool) {
	if kind != m.feed {
		return "", true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stale++
	whole, news = m.whole[id], true
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

// anyChanged forgets all answers of a kind.
func (m *Memo[V]) anyChanged(kind string) {
	if kind == m.feed {
		m.invalidate()
	}
}

// invalidate makes the next reader ask. What the change feed does not tell is
// kept: somebody has to find out that it is another answer.
func (m *Memo[V]) invalidate() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stale++
	if m.feed != "" {
		clear(m.by)
		clear(m.about)
	}
	for key, have := range m.by {
		have.void = true
		m.by[key] = have
	}
}
