// Package quota counts what is held at once, by everybody and by each holder.
package quota

import "sync"

// Quota bounds what all holders hold together, and what one of them does. It
// keeps no count for those who hold nothing, so that it takes no more memory
// than what it bounds. It is safe for concurrent use.
type Quota[K comparable] struct {
	all, each int64

	mu   sync.Mutex
	held map[K]int64
	sum  int64

	tally Tally
}

// Shares is the number of equal parts of a ceiling. A holder that could starve others may have one.
const Shares = 4

// Share returns how much of a ceiling is one share, at least 1.
func Share[N int | int64](most N) N { return max(1, most/Shares) }

// New returns a quota of all in sum and each for one holder.
func New[K comparable](all, each int64) *Quota[K] {
	return &Quota[K]{all: all, each: each, held: map[K]int64{}}
}

// Verdict says whether a holder got what it asked for, and what was too little.
type Verdict int

// Verdicts of Take.
const (
	Taken    Verdict = iota
	FullAll          // everybody together holds as much as there may be
	FullEach         // the holder does
)

// Take gives n to a holder, or nothing. Give it back with Return.
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

// Return takes back what the holder was given.
func (q *Quota[K]) Return(holder K, n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sum -= n
	if q.held[holder] -= n; q.held[holder] == 0 {
		delete(q.held, holder)
	}
}

// Held is what is held by everybody together.
func (q *Quota[K]) Held() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sum
}
