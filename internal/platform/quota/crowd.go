package quota

import (
	"container/list"
	"context"
	"sync"
)

// Crowd limits the number of members, such as connections, in total and per holder. If all places are taken, a new
// member evicts another: the oldest member of the largest holder of the largest group. So no holder and no group can
// exclude the others. It is safe for concurrent use.
type Crowd[K comparable] struct {
	all, each int
	groupOf   func(holder K) K

	mu      sync.Mutex
	holders map[K]*crowdHolder[K]
	groups  map[K]*int // number of members of each group
	sum     int
	joined  uint64 // last value of Member.since

	tally Tally
}

type crowdHolder[K comparable] struct {
	key, groupKey K
	held          int
	group         *int      // number of members of the holder's group
	exposed       list.List // of *Member[K] that may be evicted; the oldest is the first
}

// Member is a place in a Crowd.
type Member[K comparable] struct {
	crowd  *Crowd[K]
	holder *crowdHolder[K]
	evict  func()
	in     *list.Element // position in holder.exposed; nil if the member must not be evicted
	since  uint64
	kept   int // calls of Keep minus calls of Expose
	gone   bool
}

// NewCrowd returns a crowd with at most all members in total, and at most each members per holder. groupOf returns the
// group of a holder. If groupOf is nil, each holder is its own group.
func NewCrowd[K comparable](all, each int, groupOf func(holder K) K) *Crowd[K] {
	if groupOf == nil {
		groupOf = func(holder K) K { return holder }
	}
	return &Crowd[K]{all: all, each: each, groupOf: groupOf, holders: map[K]*crowdHolder[K]{}, groups: map[K]*int{}}
}

// Join adds a member. If a new member needs the place of this member, evict is called once, before Leave returns. evict
// must not block and must not call the crowd. Join fails with FullEach if the holder already has the maximum number of
// members. It fails with FullAll if the crowd is full and no member can be evicted.
func (c *Crowd[K]) Join(holder K, evict func()) (*Member[K], Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.holders[holder]; h != nil && h.held >= c.each && c.each < c.all {
		return nil, c.tally.Count(FullEach)
	}
	if c.sum >= c.all {
		c.tally.Count(FullAll)
		victim := c.victim()
		if victim == nil {
			return nil, FullAll
		}
		c.remove(victim)
		victim.evict()
	}
	m := &Member[K]{crowd: c, holder: c.holder(holder), evict: evict}
	m.holder.held++
	*m.holder.group++
	c.sum++
	m.expose()
	return m, Taken
}

// holder returns the holder with that key. It creates the holder if there is none.
func (c *Crowd[K]) holder(key K) *crowdHolder[K] {
	h := c.holders[key]
	if h == nil {
		h = &crowdHolder[K]{key: key, groupKey: c.groupOf(key)}
		if h.group = c.groups[h.groupKey]; h.group == nil {
			h.group = new(int)
			c.groups[h.groupKey] = h.group
		}
		c.holders[key] = h
	}
	return h
}

// victim returns the oldest exposed member of the largest holder of the largest group, or nil.
func (c *Crowd[K]) victim() *Member[K] {
	var victim *Member[K]
	for _, h := range c.holders {
		first := h.exposed.Front()
		if first == nil {
			continue
		}
		m := first.Value.(*Member[K]) //nolint:errcheck // the list holds nothing else
		if victim == nil || m.before(victim) {
			victim = m
		}
	}
	return victim
}

func (m *Member[K]) before(other *Member[K]) bool {
	switch a, b := m.holder, other.holder; {
	case *a.group != *b.group:
		return *a.group > *b.group
	case a.held != b.held:
		return a.held > b.held
	}
	return m.since < other.since
}

// Keep protects the member from eviction. The protection ends when Expose has been called as often as Keep.
func (m *Member[K]) Keep() {
	m.crowd.mu.Lock()
	defer m.crowd.mu.Unlock()
	m.kept++
	m.protect()
}

// Expose cancels one call of Keep. When all calls of Keep are cancelled, the member may be evicted again, and it counts
// as the youngest member.
func (m *Member[K]) Expose() {
	m.crowd.mu.Lock()
	defer m.crowd.mu.Unlock()
	if m.kept--; m.kept == 0 && !m.gone {
		m.expose()
	}
}

// Leave releases the place of the member. It does nothing if the member was evicted or has already left.
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
	h := m.holder
	*h.group--
	if h.held--; h.held > 0 {
		return
	}
	delete(c.holders, h.key)
	if *h.group == 0 {
		delete(c.groups, h.groupKey)
	}
}

func (m *Member[K]) expose() {
	m.crowd.joined++
	m.since = m.crowd.joined
	m.in = m.holder.exposed.PushBack(m)
}

func (m *Member[K]) protect() {
	if m.in != nil {
		m.holder.exposed.Remove(m.in)
		m.in = nil
	}
}

// Wait joins the crowd while the function wait runs. It fails with the error full if there is no place or if a new
// member evicts this one. After an eviction, full is also the cause of the context of wait.
func (c *Crowd[K]) Wait(ctx context.Context, holder K, full error, wait func(context.Context) error) error {
	ctx, evict := context.WithCancelCause(ctx)
	defer evict(nil)
	m, verdict := c.Join(holder, func() { evict(full) })
	if verdict != Taken {
		return full
	}
	defer m.Leave()
	err := wait(ctx)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
