package engine

import (
	"sync"
	"sync/atomic"
)

// cache keeps what was read from the store until a change is announced for
// it. It is bounded: beyond max an arbitrary entry makes room.
//
// A read that began before an announcement may carry the state from before
// it. load therefore remembers how many announcements there had been when it
// started, and keeps nothing that an announcement overtook.
type cache[K comparable, V any] struct {
	max int

	announced atomic.Uint64
	mu        sync.RWMutex
	entries   map[K]V
}

func newCache[K comparable, V any](max int) *cache[K, V] {
	return &cache[K, V]{max: max, entries: map[K]V{}}
}

// get returns the cached value, or reads and keeps it.
func (c *cache[K, V]) get(k K, read func() (V, error)) (V, error) {
	c.mu.RLock()
	v, ok := c.entries[k]
	c.mu.RUnlock()
	if ok {
		return v, nil
	}
	before := c.announced.Load()
	v, err := read()
	if err != nil {
		return v, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.announced.Load() != before {
		return v, nil
	}
	if len(c.entries) >= c.max {
		c.dropAny()
	}
	c.entries[k] = v
	return v, nil
}

// drop forgets k. It is called after the change is committed.
func (c *cache[K, V]) drop(k K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.announced.Add(1)
	delete(c.entries, k)
}

// dropAll forgets everything.
func (c *cache[K, V]) dropAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.announced.Add(1)
	clear(c.entries)
}

func (c *cache[K, V]) dropAny() {
	for k := range c.entries {
		delete(c.entries, k)
		return
	}
}
