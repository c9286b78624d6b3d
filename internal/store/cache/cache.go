// Package cache keeps data of the store in memory until the store announces a change of the data.
package cache

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/singleflight"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Set has all caches of one owner, for example of the authorizer. A new cache adds itself, so that every cache gets the
// announcements of the store.
type Set []interface {
	changed(c keyserver.Change)
	dropAll()
}

// Changed drops the entries that committed changes made stale. Kinds of data without a cache are read from the store
// each time. An empty list means that the store does not know all changes any more, so Changed drops everything.
func (all Set) Changed(changes []keyserver.Change) {
	for _, one := range all {
		if len(changes) == 0 {
			one.dropAll()
		}
		for _, c := range changes {
			one.changed(c)
		}
	}
}

// Cache is a bounded cache. If it has max entries, a new entry replaces an arbitrary one. Concurrent misses of the same
// entry share one read.
//
// A read that began before the announcement of a change may return the old state. Therefore Get counts announcements.
// It does not store a value if a change was announced during the read. Callers do not share a read that began before
// the last announcement.
type Cache[K comparable, V any] struct {
	max   int
	kinds []keyserver.ChangeKind // changes of these kinds make all entries stale

	announced atomic.Uint64
	mu        sync.RWMutex
	entries   map[K]V
	reads     singleflight.Group[V]
}

// New returns a cache. A change of one of the kinds makes all of its entries stale.
func New[K comparable, V any](in *Set, max int, kind keyserver.ChangeKind, more ...keyserver.ChangeKind) *Cache[K, V] {
	c := &Cache[K, V]{max: max, kinds: append(more, kind), entries: map[K]V{}}
	*in = append(*in, c)
	return c
}

// ByID is a cache by object id. A change of its kind makes the entry of the changed object stale, or all entries if the
// change has no id.
type ByID[V any] struct {
	Cache[keyserver.ID, V]
	kind keyserver.ChangeKind
	read func(ctx context.Context, id keyserver.ID) (V, error)
}

// NewByID returns a cache by id for changes of the kind. read must return when its context ends.
func NewByID[V any](in *Set, max int, kind keyserver.ChangeKind, read func(context.Context, keyserver.ID) (V, error)) *ByID[V] {
	c := &ByID[V]{kind: kind, read: read}
	c.max, c.entries = max, map[keyserver.ID]V{}
	*in = append(*in, c)
	return c
}

// Get is Cache.Get with the read function of the cache. It does not allocate if the value is cached.
func (c *ByID[V]) Get(ctx context.Context, id keyserver.ID) (V, error) {
	if v, ok := c.held(id); ok {
		return v, nil
	}
	return c.Cache.Get(ctx, id, func() (V, error) { return c.read(ctx, id) })
}

func (c *ByID[V]) changed(change keyserver.Change) {
	switch {
	case change.Kind != c.kind:
	case change.ID.IsZero(): // the change concerns unknown objects
		c.dropAll()
	default:
		c.drop(change.ID)
	}
}

// Get returns the cached value, or calls read and stores the result. read must return when ctx ends. A caller that
// shares a read gets its result, including a not-found error. The result may be up to a second old: another replica may
// have changed the value since then.
func (c *Cache[K, V]) Get(ctx context.Context, k K, read func() (V, error)) (V, error) {
	if v, ok := c.held(k); ok {
		return v, nil
	}
	before := c.announced.Load()
	return c.reads.Do(ctx, fmt.Sprint(before, " ", k), func() (V, error) {
		if v, ok := c.held(k); ok { // another read has stored the value
			return v, nil
		}
		v, err := read()
		if err == nil {
			c.keep(k, v, before)
		}
		return v, err
	})
}

// Fill reads the missing entries of keys with one call of read. If the cache is full, each new entry replaces an
// arbitrary entry.
func (c *Cache[K, V]) Fill(keys []K, read func(missing []K) (map[K]V, error)) error {
	var missing []K
	for _, k := range keys {
		if _, ok := c.held(k); !ok {
			missing = append(missing, k)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	keep := c.Reading()
	found, err := read(missing)
	if err != nil {
		return err
	}
	for k, v := range found {
		keep(k, v)
	}
	return nil
}

// Reading returns a function that stores values in the cache. Call Reading before you read the values. The function
// stores nothing if a change was announced after Reading.
func (c *Cache[K, V]) Reading() (keep func(K, V)) {
	before := c.announced.Load()
	return func(k K, v V) { c.keep(k, v, before) }
}

// Len returns the number of entries.
func (c *Cache[K, V]) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.entries)
}

func (c *Cache[K, V]) held(k K) (V, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	v, ok := c.entries[k]
	return v, ok
}

func (c *Cache[K, V]) keep(k K, v V, before uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.announced.Load() != before {
		return
	}
	if len(c.entries) >= c.max {
		c.dropAny()
	}
	c.entries[k] = v
}

// changed drops the entries that a committed change made stale.
func (c *Cache[K, V]) changed(change keyserver.Change) {
	if slices.Contains(c.kinds, change.Kind) {
		c.dropAll()
	}
}

// drop removes the entry of k.
func (c *Cache[K, V]) drop(k K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.announced.Add(1)
	delete(c.entries, k)
}

// dropAll removes all entries.
func (c *Cache[K, V]) dropAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.announced.Add(1)
	clear(c.entries)
}

func (c *Cache[K, V]) dropAny() {
	for k := range c.entries {
		delete(c.entries, k)
		return
	}
}
