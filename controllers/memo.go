package controllers

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// answers describes single answers that a service gives about objects of
// which there are too many to list, or that have no list.
type answers[V any] struct {
	// Feed is the kind of changes that make an answer void.
	Feed string
	Name string
	Read func(ctx context.Context, c *connection, key string) (V, error)
	// ID returns the id of the object that an answer is about.
	ID func(V) string
}

// of returns the connection's memo.
func (a *answers[V]) of(c *connection) *memo[V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have, ok := c.memos[a.Name].(*memo[V]); ok {
		return have
	}
	m := &memo[V]{
		clock: c.clock, feed: a.Feed, id: a.ID, by: map[string]remembered[V]{},
		read: func(ctx context.Context, key string) (V, error) { return a.Read(ctx, c, key) },
	}
	c.memos[a.Name] = m
	return m
}

// memo remembers answers, each until the change feed reports on its object.
type memo[V any] struct {
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
}

// get returns the answer for a key, read no earlier than notBefore. Failures
// are not remembered.
func (m *memo[V]) get(ctx context.Context, notBefore time.Time, key string) (V, error) {
	m.mu.Lock()
	have, ok := m.by[key]
	stale, begun := m.stale, m.clock.Now()
	m.mu.Unlock()
	if ok && !have.readAt.Before(notBefore) {
		return have.value, nil
	}
	value, err := m.read(ctx, key)
	if err != nil {
		return value, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stale == stale {
		m.by[key] = remembered[V]{value: value, readAt: begun}
	}
	return value, nil
}

// last returns the answer for a key however old it is.
func (m *memo[V]) last(key string) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	have, ok := m.by[key]
	return have.value, ok
}

// changed forgets the answers about one object.
func (m *memo[V]) changed(kind, id string) {
	if kind != m.feed {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stale++
	for key, have := range m.by {
		if m.id(have.value) == id {
			delete(m.by, key)
		}
	}
}

// invalidate forgets everything.
func (m *memo[V]) invalidate() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stale++
	clear(m.by)
}
