package audit

import (
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/quota"
)

const (
	// othersRecent is the time after a row of another process during which lists leave time to other processes.
	othersRecent = time.Second
	// mostHeld limits a rest to a multiple of the time in which no other process could commit, and maxRest in total.
	mostHeld = 5
	maxRest  = time.Second
)

// lists are the waiters with several rows. Their principals alternate. Only one process at a time can commit to a
// shared database. So while other processes write, no list is committed during a rest after each commit with a list.
type lists struct {
	mu      sync.Mutex
	waiting quota.FairQueue[keyserver.PrincipalRef]
	waiters map[*quota.Waiter[keyserver.PrincipalRef]]*waiter
	rest    chan struct{} // closed at the end of the rest; nil if there is none
	ended   bool          // no more rests
}

// join adds a waiter, unless most of them wait.
func (l *lists) join(wait *waiter, most int) bool {
	holder := wait.entry.Actor
	if holder == (keyserver.PrincipalRef{}) {
		holder = wait.entry.Principal
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting.Len() >= most {
		return false
	}
	l.waiters[l.waiting.Join(holder)] = wait
	return true
}

// next removes and returns a waiter that may be committed. It returns nil if there is none.
func (l *lists) next() *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rest != nil || l.waiting.Len() == 0 {
		return nil
	}
	served := l.waiting.Serve()
	wait := l.waiters[served]
	delete(l.waiters, served)
	return wait
}

func (l *lists) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting.Len()
}

// restAfter returns the rest after a commit of rows, during which no other process could commit for the time held.
// others is the number of rows that other processes wrote since the last commit with a list. Processes whose lists are
// equally long together use half of the time, if they are at most three.
func restAfter(held time.Duration, rows int, others int64) time.Duration {
	times := min(1+2*float64(others)/float64(rows), mostHeld)
	return min(time.Duration(times*float64(held)), maxRest)
}

// begin begins a rest.
func (l *lists) begin(length time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	rest := make(chan struct{})
	l.rest = rest
	time.AfterFunc(length, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.rest = nil
		close(rest)
	})
}

// resting returns a channel that is closed at the end of the rest. It returns nil if there is none.
func (l *lists) resting() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rest
}

// end ends the rest and prevents further ones.
func (l *lists) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended, l.rest = true, nil
}
