// Package quota limits concurrent use of resources, by all holders together and by each holder.
package quota

import "sync"

// Quota limits the amount that all holders have together, and the amount of each. It has no entry
// for holders without an amount, so that its memory is bounded by the limit. It is safe for
// concurrent use.
type Quota[K comparable] struct {
	all, each int64

	mu   sync.Mutex
	held map[K]int64
	sum  int64

	tally Tally
}

// Shares is the number of equal parts of a ceiling. A holder that could starve others may have one.
const Shares = 4

// Share returns one share of a limit, at least 1.
func Share[N int | int64](most N) N { return max(1, most/Shares) }

// New returns a quota with the limits all for the sum and each for one holder.
func New[K comparable](all, each int64) *Quota[K] {
	return &Quota[K]{all: all, each: each, held: map[K]int64{}}
}

// Verdict is the result of a request: granted, or the limit that refused it.
type Verdict int

// Verdicts of Take.
const (
	Taken    Verdict = iota
	FullAll          // the limit of all holders is reached
	FullEach         // the limit of the holder is reached
)

// Take grants n to a holder, or nothing. Release it with Return.
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

// Held returns the amount that all holders have together.
func (q *Quota[K]) Held() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sum
}
