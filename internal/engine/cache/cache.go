// Package cache keeps what was read from the store until a change of it is
// announced.
package cache

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/singleflight"
)

// Set is the caches of one holder. A cache enters itself when it is made, with
// the kinds of change that make its entries stale: none can be made that the
// store's announcements pass by.
type Set []interface {
	changed(c keyserver.Change)
	dropAll()
}

// Changed forgets what a committed change made stale. Kinds that no cache names
// are read from the store each time. No changes at all means that some are no
// longer known, so that anything may be stale.
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

// Cache is bounded: beyond max an arbitrary entry makes room. Who misses the same
// entry at the same moment shares one read.
//
// A read that began before an announcement may carry the state from before
// it. Get therefore remembers how many announcements there had been when it
// started, keeps nothing that an announcement overtook, and joins no read that
// began with fewer.
type Cache[K comparable, V any] struct {
	max   int
	kinds []keyserver.ChangeKind // that make any entry stale

	announced atomic.Uint64
	mu        sync.RWMutex
	entries   map[K]V
	reads     singleflight.Group[V]
}

// New makes a cache whose entries are all stale after a change of one of
// the kinds.
func New[K comparable, V any](in *Set, max int, kind keyserver.ChangeKind, more ...keyserver.ChangeKind) *Cache[K, V] {
	c := &Cache[K, V]{max: max, kinds: append(more, kind), entries: map[K]V{}}
	*in = append(*in, c)
	return c
}

// ByID is a cache by the id that changes of its kind name: such a change
// makes one entry stale, or all where it names none.
type ByID[V any] struct {
	Cache[keyserver.ID, V]
	kind keyserver.ChangeKind
}

// NewByID makes a cache by id for changes of the kind.
func NewByID[V any](in *Set, max int, kind keyserver.ChangeKind) *ByID[V] {
	c := &ByID[V]{kind: kind}
	c.max, c.entries = max, map[keyserver.ID]V{}
	*in = append(*in, c)
	return c
}

func (c *ByID[V]) changed(change keyserver.Change) {
	switch {
	case change.Kind != c.kind:
	case change.ID.IsZero(): // more than are named
		c.dropAll()
	default:
		c.drop(change.ID)
	}
}

// Get returns the cached value, or reads and keeps it. read minds ctx. Who joins
// a read is answered what it finds: that there is nothing, too, which another
// replica may have changed within the second that an answer may be old.
func (c *Cache[K, V]) Get(ctx context.Context, k K, read func() (V, error)) (V, error) {
	if v, ok := c.held(k); ok {
		return v, nil
	}
	before := c.announced.Load()
	return c.reads.Do(ctx, fmt.Sprint(before, " ", k), func() (V, error) {
		if v, ok := c.held(k); ok { // by a read that ended just now
			return v, nil
		}
		v, err := read()
		if err == nil {
			c.keep(k, v, before)
		}
		return v, err
	})
}

// Fill reads, all at once, what of some keys is not kept yet. What is kept goes as ever
// where there are too many.
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

// Reading answers what keeps what is read from now on, unless a change has made it stale by
// then. It is asked for before the read.
func (c *Cache[K, V]) Reading() (keep func(K, V)) {
	before := c.announced.Load()
	return func(k K, v V) { c.keep(k, v, before) }
}

// Len answers how many entries are kept.
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

// changed is called after the change is committed.
func (c *Cache[K, V]) changed(change keyserver.Change) {
	if slices.Contains(c.kinds, change.Kind) {
		c.dropAll()
	}
}

// drop forgets k.
func (c *Cache[K, V]) drop(k K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.announced.Add(1)
	delete(c.entries, k)
}

// dropAll forgets everything.
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
