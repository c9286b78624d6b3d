// Package quota limits concurrent use of resources, by all holders together and by each holder.
package quota

import "sync"

// Quota limits the amount that all holders use together, and the amount of each holder. It has no entry for a holder
// that uses nothing, so its memory is bounded. It is safe for concurrent use.
type Quota[K comparable] struct {
	all, each int64

	mu   sync.Mutex
	held map[K]int64
	sum  int64

	tally Tally
}

// Shares is the number of equal shares of a limit. A holder may use one share, so that it cannot exclude the others.
const Shares = 4

// Share returns one share of a limit, but at least 1.
func Share[N int | int64](most N) N { return max(1, most/Shares) }

// New returns a quota. all is the limit for all holders together, each is the limit for one holder.
func New[K comparable](all, each int64) *Quota[K] {
	return &Quota[K]{all: all, each: each, held: map[K]int64{}}
}

// Verdict is the result of Take or Join: granted, or the limit that was reached.
type Verdict int

// The values of Verdict.
const (
	Taken    Verdict = iota
	FullAll          // the limit for all holders together is reached
	FullEach         // the limit for this holder is reached
)

// Take grants the entire amount n to a holder, or nothing. Return releases the amount.
func (q *Quota[K]) Take(holder K, n int64) Verdict {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.held[holder]+n > q.each:
		return q.tally.Count(FullEach)
	case q.sum+n > q.all:
		return q.tally.Count(FullAll)
	}
	q.held[holder] += n
	q.sum += n
	return Taken
}

// Return releases an amount of the holder.
func (q *Quota[K]) Return(holder K, n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sum -= n
	if q.held[holder] -= n; q.held[holder] == 0 {
		delete(q.held, holder)
	}
}

// Held returns the amount that all holders use together.
func (q *Quota[K]) Held() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sum
}
