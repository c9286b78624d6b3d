package quota

import (
	"container/list"
	"sync"
)

// Crowd bounds what all holders hold together, and what one holder holds. If all of it is
// taken, a newcomer evicts the oldest member of the largest holder, so no holder can keep the
// others out. It is safe for concurrent use.
type Crowd[K comparable] struct {
	all, each int

	mu      sync.Mutex
	holders map[K]*list.List // of *Member[K] that may be evicted, the oldest first
	held    map[K]int
	sum     int
}

// Member is a place in a Crowd.
type Member[K comparable] struct {
	crowd  *Crowd[K]
	holder K
	evict  func()
	in     *list.Element // nil if it may not be evicted
	gone   bool
}

// NewCrowd returns a crowd of at most all members, and at most each members of one holder.
func NewCrowd[K comparable](all, each int) *Crowd[K] {
	return &Crowd[K]{all: all, each: each, holders: map[K]*list.List{}, held: map[K]int{}}
}

// Join adds a member. evict is called at most once, before Leave returns, if a newcomer needs
// the place; it must not block and must not call the crowd. Join fails with FullEach if the
// holder has each members, and with FullAll if no member can be evicted.
func (c *Crowd[K]) Join(holder K, evict func()) (*Member[K], Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[holder] >= c.each {
		return nil, FullEach
	}
	if c.sum >= c.all {
		victim := c.victim()
		if victim == nil {
			return nil, FullAll
		}
		c.remove(victim)
		victim.evict()
	}
	m := &Member[K]{crowd: c, holder: holder, evict: evict}
	c.held[holder]++
	c.sum++
	m.expose()
	return m, Taken
}

// victim is the oldest member of the holder that holds most and has one to evict.
func (c *Crowd[K]) victim() *Member[K] {
	var oldest *Member[K]
	most := 0
	for holder, members := range c.holders {
		if held := c.held[holder]; held > most {
			most, oldest = held, members.Front().Value.(*Member[K]) //nolint:errcheck // the list holds nothing else
		}
	}
	return oldest
}

// Keep protects the member from eviction until Expose is called.
func (m *Member[K]) Keep() {
	m.crowd.mu.Lock()
	defer m.crowd.mu.Unlock()
	m.protect()
}

// Expose lets newcomers evict the member again. It counts as the holder's youngest.
func (m *Member[K]) Expose() {
	m.crowd.mu.Lock()
	defer m.crowd.mu.Unlock()
	if !m.gone && m.in == nil {
		m.expose()
	}
}

// Leave gives the place back. It does nothing for a member that was evicted or has left.
func (m *Member[K]) Leave() {
	m.crowd.mu.Lock()
	defer m.crowd.mu.Unlock()
	if !m.gone {
		m.crowd.remove(m)
	}
}

// Held returns the number of members.
func (c *Crowd[K]) Held() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(c.sum)
}

func (c *Crowd[K]) remove(m *Member[K]) {
	m.protect()
	m.gone = true
	c.sum--
	if c.held[m.holder]--; c.held[m.holder] == 0 {
		delete(c.held, m.holder)
	}
}

func (m *Member[K]) expose() {
	members := m.crowd.holders[m.holder]
	if members == nil {
		members = list.New()
		m.crowd.holders[m.holder] = members
	}
	m.in = members.PushBack(m)
}

func (m *Member[K]) protect() {
	if m.in == nil {
		return
	}
	members := m.crowd.holders[m.holder]
	members.Remove(m.in)
	m.in = nil
	if members.Len() == 0 {
		delete(m.crowd.holders, m.holder)
	}
}
